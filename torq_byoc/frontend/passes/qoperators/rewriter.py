"""What the rewrites of one operator on integers have in common: its operands dequantized, its result quantized."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from torq_byoc.errors import ModelFileError, UnsupportedOpError
from torq_byoc.frontend.graph import attribute, describe, operator_name
from torq_byoc.frontend.passes.editor import GraphEditor

_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass
class Rewriter:
    """Builds the nodes that take the place of one operator.

    Indices are positions in the operator's inputs; an input that is left out has an empty name.
    """

    node: onnx.NodeProto
    editor: GraphEditor

    def __post_init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def name(self, index: int) -> str:
        """The tensor at a position; empty where there is none."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def emit(self, op_type: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node; returns its output."""
        result = output or self.editor.fresh_name(f"{self.node.output[0]}_{op_type}")
        self.nodes.append(self.editor.node(op_type, inputs, result, self.node, **attributes))
        return result

    def constant(self, value: np.ndarray, label: str) -> str:
        """Store a tensor; returns its name."""
        return self.editor.add_constant(value, f"{self.node.output[0]}_{label}")

    def attributes(self, *names: str) -> dict[str, Any]:
        """Those of the operator's attributes that it has; an empty list is none."""
        held = {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}
        return {name: held[name] for name in names if held.get(name, []) != []}

    def attribute(self, name: str, default: Any) -> Any:
        """One attribute of the operator."""
        return attribute(self.node, name, default)

    def rank(self, index: int) -> int | None:
        """Number of dimensions of an input; None while it is not known."""
        shape = self.editor.shapes.get(self.name(index))
        return None if shape is None else len(shape)

    def dequantized(self, tensor: int, scale: int, zero: int, axis: int = 1) -> str:
        """An input as real numbers; ``axis`` is the one that its scales belong to, if there are several."""
        factors = self.vector(self.scale(scale))
        operands = [self.name(tensor), factors, self.vector(self.name(zero))]
        extra: dict[str, Any] = {"axis": axis} if self._count(self.name(scale)) > 1 else {}
        return self.emit("DequantizeLinear", [n for n in operands if n], **extra)

    def triple(self, first: int, axis: int = 1) -> str:
        """``dequantized`` where tensor, scale and zero point follow each other."""
        return self.dequantized(first, first + 1, first + 2, axis)

    def scale(self, index: int) -> str:
        """A scale as float32: these operators compute with it exactly, whatever narrower type it is stored in."""
        name = self.name(index)
        return self.emit("Cast", [name], to=TensorProto.FLOAT) if self.editor.types.get(name) in _NARROW else name

    def vector(self, name: str) -> str:
        """Parameters along one axis as a vector: some operators write them as a matrix with one long side.

        Raises:
            UnsupportedOpError: they vary along more than one axis.
        """
        shape = self.editor.static_shape(name) if name else None
        if shape is None or len(shape) < 2:
            return name
        if math.prod(shape) != max(shape):
            raise self.refusal(f"{name!r} has shape {list(shape)}, and scales along one axis only can be expressed")
        return self.emit("Reshape", [name, self.constant(np.array([-1], np.int64), "shape")])

    def _count(self, name: str) -> int:
        return math.prod(n or 1 for n in self.editor.shapes.get(name, ()))

    def bias(self, index: int, scales: tuple[int, int], factor: float = 1.0) -> str:
        """An int32 bias, whose scale is ``factor`` times the product of two others."""
        name, columns = self.name(index), max(map(self._count, map(self.name, scales)))
        values = [self.editor.array(self.name(i)) for i in scales]
        if any(value is None for value in values):
            scale = self.emit("Mul", [self.vector(self.scale(i)) for i in scales])
            if factor != 1.0:
                scale = self.emit("Mul", [scale, self.constant(np.array(factor, np.float32), "factor")])
        else:
            first, second = (np.asarray(value, np.float64).reshape(-1) for value in values)
            if 1 not in (first.size, second.size) and first.size != second.size:
                raise self.refusal(f"its operands have {first.size} and {second.size} scales")
            product = (first * second * factor).astype(np.float32)
            scale = self.constant(product if product.size > 1 else product.reshape(()), f"{name}_scale")
        if columns == 1:
            return self.emit("DequantizeLinear", [name, scale])
        if self._count(name) == 1:
            return self.emit("Mul", [self.emit("Cast", [name], to=TensorProto.FLOAT), scale])
        rank = len(self.editor.shapes.get(name, (0,)))
        return self.emit("DequantizeLinear", [name, scale], axis=rank - 1)

    def finish_quantized(self, value: str, scale: int, zero: int) -> None:
        """``value`` with the result's scale and zero point is what the operator computes."""
        operands = [n for n in (value, self.vector(self.scale(scale)), self.vector(self.name(zero))) if n]
        self.emit("QuantizeLinear", operands, self.node.output[0])
        self.editor.replace(self.node, self.nodes)

    def finish(self) -> None:
        """The last node computes what the operator does."""
        self.nodes[-1].output[0] = self.node.output[0]
        self.editor.replace(self.node, self.nodes)

    def refusal(self, why: str) -> UnsupportedOpError:
        """The error for a form of the operator that cannot be written with others."""
        name = operator_name(self.node)
        return UnsupportedOpError(
            f"{name} is used in a form that cannot be compiled",
            where=describe(self.node),
            why=why,
            remedy="export the model in QDQ form, or quantize the float model again",
            details={"ops": [name], "nodes": [self.node.name]},
        )


@dataclass(frozen=True)
class Rewrite:
    """How an operator is rewritten.

    Attributes:
        apply: puts other nodes in the operator's place.
        needs: positions of the inputs that must be given.
    """

    apply: Callable[[Rewriter], None]
    needs: tuple[int, ...]

    def __call__(self, rewriter: Rewriter) -> None:
        """Rewrite one node.

        Raises:
            ModelFileError: it lacks an input.
            UnsupportedOpError: its form cannot be written with other operators.
        """
        missing = [position for position in self.needs if not rewriter.name(position)]
        if missing or not rewriter.node.output:
            raise ModelFileError(
                "A node lacks an input" if missing else "A node has no output",
                where=describe(rewriter.node),
                why=f"inputs {missing} are left out" if missing else "",
                remedy="export the model again; the file does not follow the operator's definition",
            )
        self.apply(rewriter)
