"""What the channels of a float model's tensors hold on samples: their extremes, and how these compare to the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.quantize import rules

CHANNEL_AXES = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
"""Along which axis of its input a layer sums."""
FEWEST_VALUES = 100
"""Values of a channel below which its extremes say little about unseen data."""
_DEAD = 1e-9
_NEAR = 0.9
"""Magnitude from which on a result of a bounded operator is near its bounds."""
_FEWEST_CHANNELS = 4


@dataclass(frozen=True, eq=False)
class ChannelValues:
    """Of one tensor along one axis, over all samples and all other axes.

    Attributes:
        low, high: [channels].
        count: values of each channel.
    """

    low: np.ndarray
    high: np.ndarray
    count: int

    @property
    def peak(self) -> np.ndarray:
        """Largest magnitude of every channel, float64."""
        return np.maximum(-self.low, self.high).astype(np.float64)

    @property
    def alive(self) -> np.ndarray:
        """Which channels hold anything beside the largest."""
        return self.peak > self.peak.max(initial=0.0) * _DEAD

    @property
    def missing_bits(self) -> float:
        """How many bits fewer than the largest channel the others use on average; 0 when there are too few values."""
        peak = self.peak[self.alive]
        if peak.size < _FEWEST_CHANNELS or self.count < FEWEST_VALUES:
            return 0.0
        return float(np.mean(np.log2(peak.max() / peak)))

    def joined(self, other: ChannelValues) -> ChannelValues:
        """Both together."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return ChannelValues(low, high, self.count + other.count)


class ChannelStatistics:
    """Values of the channels of the tensors that rewrites ask about.

    Those are what layers with weights read, operands of concatenations, results of clips, and the model's outputs
    with what they are moved from.  Of bounded operators it also keeps how much of their results is near the bounds.

    Args:
        model: a prepared float model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._found: dict[tuple[str, int], ChannelValues] = {}
        self._wanted = dict(_wanted(model))
        self._bounded = {node.output[0]: np.zeros(2) for node in model.graph.node if node.op_type in rules.BOUNDED}
        read = {name for name, _ in self._wanted}
        self._energy = {value.name: (0.0, 0) for value in model.graph.input if value.name in read}

    def add(self, values: Mapping[str, np.ndarray]) -> None:
        """Take in all tensors of one sample."""
        for (name, axis), _ in self._wanted.items():
            found = _of(values[name], axis) if name in values else None
            if found is not None:
                old = self._found.get((name, axis))
                self._found[name, axis] = old.joined(found) if old else found
        for name in self._bounded:
            if name in values:
                self._bounded[name] = self._bounded[name] + _energies(values[name])
        for name, (squares, count) in self._energy.items():
            given = values[name].reshape(-1).astype(np.float64)
            self._energy[name] = squares + float(given @ given), count + int(np.count_nonzero(given))

    def of(self, name: str, axis: int) -> ChannelValues | None:
        """Values along an axis (1 or the last, -1); None for tensors of integers, of one dimension, and others."""
        return self._found.get((name, axis))

    def crest(self, name: str) -> float:
        """Largest magnitude in a model's input over the root mean square of what is not zero; 0 for other tensors."""
        squares, count = self._energy.get(name, (0.0, 0))
        return self.span(name) / (squares / count) ** 0.5 if squares else 0.0

    def saturated(self, name: str) -> float:
        """Share of the energy of a bounded operator's results that is in values near its bounds."""
        whole, near = self._bounded.get(name, np.zeros(2))
        return float(near / whole) if whole else 0.0

    def span(self, name: str) -> float:
        """Largest magnitude in the tensor; 0 when it is not known."""
        found = self._found.get((name, 1)) or self._found.get((name, -1))
        return float(found.peak.max(initial=0.0)) if found else 0.0


def most_rows(model: onnx.ModelProto) -> int:
    """Values of a channel that one sample gives, in the layer with weights that sees the most; at least 1.

    Args:
        model: prepared: static shapes.
    """
    graph = model.graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.input)
    }
    rows = [1]
    for node in graph.node:
        shape = shapes.get(node.input[0]) if node.op_type in rules.WEIGHTED else None
        if shape and all(shape):
            rows.append(math.prod(shape) // shape[CHANNEL_AXES[node.op_type]])
    return max(rows)


def _of(values: np.ndarray, axis: int) -> ChannelValues | None:
    if values.dtype.kind != "f" or values.ndim < 2 or not values.size:
        return None
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    return ChannelValues(values.min(axis=others), values.max(axis=others), values.size // values.shape[axis])


def _energies(values: np.ndarray) -> np.ndarray:
    """Sum of squares of all values, and of those near 1 or -1."""
    squares = np.square(values, dtype=np.float64)
    return np.array([squares.sum(), squares[squares >= _NEAR**2].sum()])


def _wanted(model: onnx.ModelProto) -> Iterable[tuple[tuple[str, int], None]]:
    for node in model.graph.node:
        if node.op_type in rules.WEIGHTED:
            yield (node.input[0], CHANNEL_AXES[node.op_type]), None
        elif node.op_type == "Concat":
            yield from (((name, 1), None) for name in node.input)
        elif node.op_type == "Clip":
            yield from (((node.output[0], axis), None) for axis in (1, -1))
    for value in model.graph.output:
        yield from (((value.name, axis), None) for axis in (1, -1))
