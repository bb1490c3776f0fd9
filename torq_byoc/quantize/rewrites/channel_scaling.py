"""Which constants of a model to multiply so that the channels of one tensor change their sizes.

Before: ``t = Relu(Conv(x, w, b)); y = Conv(t, v)``
After:  ``t = Relu(Conv(x, s w, s b)); y = Conv(t, v / s)``, every channel of ``t`` with a positive factor of its own

Upwards a factor passes through what treats channels alike and is homogeneous (ReLU, pooling, concatenation of
channels) to the layer or normalization that makes them; downwards every reader must be a layer with constant weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics

_PASSING = frozenset({"Relu", "LeakyRelu", "PRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
_NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization"})
CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_REACHED = 1.0 - 1e-6
"""Share of a clip's bound from which on values count as clipped."""
_HEADROOM = 1.25
"""How far below a clip's bound the largest sample of a channel stays: unseen data may be somewhat larger."""


@dataclass(frozen=True)
class Stored:
    """A constant operand of a node, and along which of its axes the channels lie."""

    node: str
    position: int
    axis: int


@dataclass(frozen=True, eq=False)
class Source:
    """Where the channels of a tensor come from.

    Attributes:
        multiplied: constants to multiply; each with the range of channels that it makes.
        makers: the nodes that make the channels.
        most: for every channel the largest factor that values on the samples allow (clips in between).
    """

    multiplied: tuple[tuple[Stored, int, int], ...]
    makers: tuple[str, ...]
    most: np.ndarray


class ChannelScaling:
    """Finds and applies factors in one model.

    Args:
        model: a prepared float model; ``apply`` changes it.
        statistics: what its tensors hold.
    """

    def __init__(self, model: onnx.ModelProto, statistics: ChannelStatistics) -> None:
        self.editor = GraphEditor(model)
        self.statistics = statistics
        self.nodes = {node.name: node for node in model.graph.node}

    def source(self, name: str, axis: int, channels: int) -> Source | None:
        """What makes the channels of a tensor, when all of it can be scaled and nobody else sees it.

        Args:
            name: the tensor.
            axis: 1, or -1 for the last.
            channels: its extent along that axis.
        """
        node = self.editor.producers.get(name)
        if node is None:
            return None
        if node.op_type == "Concat":
            return self._of_concat(node, axis, channels)
        if node.op_type == "Clip":
            return self._of_clip(node, axis, channels)
        if node.op_type in _PASSING and (axis == 1 or node.op_type in ("Relu", "LeakyRelu")):
            return self._above(node.input[0], axis, channels)
        return self._of_maker(node, axis, channels)

    def readers(self, name: str, axis: int) -> tuple[Stored, ...] | None:
        """The weights that take the channels of a tensor; None when some reader has none."""
        users = self.editor.readers.get(name, [])
        if not users or name in self.editor.output_names:
            return None
        found = [self._taking(user, name, axis) for user in users]
        kept = tuple(stored for stored in found if stored is not None)
        return kept if len(kept) == len(found) else None

    def shares(self, stored: Stored, channels: int) -> np.ndarray | None:
        """For every channel its largest weight in a reader, each relative to the largest of the same sum.

        None for a depthwise convolution, whose channels do not share a scale.
        """
        node = self.nodes[stored.node]
        values = np.abs(self._value(node, stored.position).astype(np.float64))
        if node.op_type == "Conv" and values.shape[1] == 1:
            return None
        if node.op_type == "Conv" and values.shape[1] != channels:
            groups = channels // values.shape[1]
            rows = [self._shares(part, 1) for part in np.split(values, groups)]
            return np.concatenate(rows)
        return self._shares(values, stored.axis)

    def multiply(self, source: Source, factors: np.ndarray) -> None:
        """Scale what makes the channels."""
        for stored, start, stop in source.multiplied:
            self._scale(stored, factors[start:stop])

    def divide(self, readers: Sequence[Stored], factors: np.ndarray) -> None:
        """Scale the weights that take the channels by the inverse."""
        for stored in readers:
            self._scale(stored, 1.0 / factors)

    @staticmethod
    def _shares(values: np.ndarray, axis: int) -> np.ndarray:
        """[channels] of weights [outputs, channels, ...] or [channels, outputs]."""
        ordered = np.moveaxis(values, axis, 0)
        rows = ordered.reshape(*ordered.shape[:2], -1).max(axis=2)
        return (rows / np.maximum(rows.max(axis=0), 1e-30)).max(axis=1)

    def _above(self, name: str, axis: int, channels: int) -> Source | None:
        return self.source(name, axis, channels) if self.editor.sole_reader(name) is not None else None

    def _of_concat(self, node: onnx.NodeProto, axis: int, channels: int) -> Source | None:
        rank = len(self.editor.shapes.get(node.output[0], ()))
        if int(attribute(node, "axis", 0)) % max(rank, 1) != axis % max(rank, 1):
            return None
        parts, start = [], 0
        for name in node.input:
            shape = self.editor.static_shape(name)
            part = self._above(name, axis, shape[axis]) if shape else None
            if part is None or shape is None:
                return None
            parts.append((part, start))
            start += shape[axis]
        return Source(
            tuple((stored, a + first, b + first) for part, first in parts for stored, a, b in part.multiplied),
            tuple(maker for part, _ in parts for maker in part.makers),
            np.concatenate([part.most for part, _ in parts]),
        )

    def _of_clip(self, node: onnx.NodeProto, axis: int, channels: int) -> Source | None:
        """Values that reach a bound other than zero stay; the others may grow until they reach it."""
        above = self._above(node.input[0], axis, channels)
        values = self.statistics.of(node.output[0], axis)
        if above is None or values is None:
            return None
        most = above.most
        for position, reached in ((1, -values.low), (2, values.high)):
            bound = self._scalar(node, position)
            if bound is None:
                return None
            limit = -bound if position == 1 else bound
            if limit < 0:
                return None
            if np.isfinite(limit) and limit > 0:
                room = np.maximum(limit / np.maximum(reached * _HEADROOM, limit * 1e-9), 1.0)
                most = np.minimum(most, np.where(reached >= limit * _REACHED, 1.0, room))
        return Source(above.multiplied, above.makers, most)

    def _of_maker(self, node: onnx.NodeProto, axis: int, channels: int) -> Source | None:
        stored = self._made_by(node, axis)
        if stored is None or not all(self._has(one, channels) for one in stored):
            return None
        found = tuple((one, 0, channels) for one in stored)
        if node.op_type == "Add":  # the other operand is the tensor that the constant is added to
            above = self._above(node.input[1 - stored[0].position], axis, channels)
            if above is None:
                return None
            return Source((*found, *above.multiplied), above.makers, above.most)
        return Source(found, (node.name,), np.full(channels, np.inf))

    def _made_by(self, node: onnx.NodeProto, axis: int) -> tuple[Stored, ...] | None:
        """The constants that a node's result is proportional to, channel by channel."""
        last = axis == -1
        if node.op_type in CONVOLUTIONS and not last:
            grouped = node.op_type == "ConvTranspose" and int(attribute(node, "group", 1)) > 1
            weights = Stored(node.name, 1, 0 if node.op_type == "Conv" else 1)
            return None if grouped else (weights, *self._bias(node))
        if node.op_type == "Gemm":  # prepared: nothing transposed, alpha = beta = 1
            return (Stored(node.name, 1, -1), *self._bias(node))
        if node.op_type == "MatMul" and last:
            return (Stored(node.name, 1, -1),)
        if node.op_type in _NORMALIZATIONS and last and int(attribute(node, "axis", -1)) in (-1, self._rank(node) - 1):
            return (Stored(node.name, 1, 0), *self._bias(node))
        if node.op_type in ("Mul", "Add"):
            return self._constant_vector(node, axis)
        return None

    def _constant_vector(self, node: onnx.NodeProto, axis: int) -> tuple[Stored, ...] | None:
        for position in (0, 1):
            name = node.input[position]
            if self.editor.array(name) is not None and self.editor.array(node.input[1 - position]) is None:
                shape = self.editor.static_shape(name) or ()
                place = axis if axis == -1 else axis - self._rank(node)
                return (Stored(node.name, position, place),) if -place <= len(shape) else None
        return None

    def _bias(self, node: onnx.NodeProto) -> tuple[Stored, ...]:
        return (Stored(node.name, 2, -1),) if len(node.input) > 2 and node.input[2] else ()

    def _taking(self, node: onnx.NodeProto, name: str, axis: int) -> Stored | None:
        """The weights of a node whose rows are the channels of its first input."""
        if list(node.input).count(name) != 1 or node.input[0] != name or len(node.input) < 2:
            return None
        weights = self.editor.array(node.input[1])
        if weights is None or weights.dtype != np.float32:
            return None
        if node.op_type == "Conv" and axis == 1:
            return Stored(node.name, 1, 1)
        if node.op_type == "ConvTranspose" and axis == 1 and int(attribute(node, "group", 1)) == 1:
            return Stored(node.name, 1, 0)
        if node.op_type == "Gemm" and not attribute(node, "transA", 0):
            return Stored(node.name, 1, 0)
        if node.op_type == "MatMul" and weights.ndim == 2 and (axis == -1 or self._rank(node) == 2):
            return Stored(node.name, 1, 0)
        return None

    def _has(self, stored: Stored, channels: int) -> bool:
        """Whether the constant is one of float32 with an entry for every channel."""
        name = self.nodes[stored.node].input[stored.position]
        values = self.editor.array(name)
        return (
            values is not None
            and values.dtype == np.float32
            and values.ndim > 0
            and values.shape[stored.axis] == channels
        )

    def _scale(self, stored: Stored, factors: np.ndarray) -> None:
        node = self.nodes[stored.node]
        values = self._value(node, stored.position)
        group = int(attribute(node, "group", 1))
        if node.op_type == "Conv" and stored.axis == 1 and group > 1:
            spread = np.repeat(factors.reshape(group, -1), values.shape[0] // group, axis=0)
            shaped = spread.reshape(*values.shape[:2], *[1] * (values.ndim - 2))
        else:
            shaped = factors.reshape([-1 if i == stored.axis % values.ndim else 1 for i in range(values.ndim)])
        name = node.input[stored.position]
        node.input[stored.position] = self.editor.add_constant((values * shaped).astype(np.float32), name)

    def _value(self, node: onnx.NodeProto, position: int) -> np.ndarray:
        values = self.editor.array(node.input[position])
        assert values is not None
        return values

    def _scalar(self, node: onnx.NodeProto, position: int) -> float | None:
        """A bound of a clip; an absent one is infinite, and None is one that is not known."""
        name = node.input[position] if len(node.input) > position else ""
        if not name:
            return -np.inf if position == 1 else np.inf
        values = self.editor.array(name)
        return None if values is None else float(values.reshape(-1)[0])

    def _rank(self, node: onnx.NodeProto) -> int:
        return len(self.editor.shapes.get(node.output[0], ()))


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model again, to be changed."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


def without_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, without constants that nothing reads."""
    used = {name for node in model.graph.node for name in node.input}
    used |= {value.name for value in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model
