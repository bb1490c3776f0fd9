"""Reading one matched group of Relax operators: what legality checks and lowerings look at.

The same questions are asked of a match that TVM proposes (to check it) and of the composite function that
came out of it (to lower it); ``View`` answers both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst
from tvm.relax.transform import PatternCheckContext

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.quant_params import QuantParams


def op_name(expr: relax.Expr) -> str:
    """Name of the operator that a call applies ("relax.add"); empty for anything else."""
    if isinstance(expr, Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return ""


def shape_of(expr: relax.Expr) -> tuple[int, ...] | None:
    """Static shape of a tensor expression, or None when a dimension (or the rank) is unknown."""
    shape = getattr(expr.ty, "shape", None)
    if shape is None or not hasattr(shape, "values"):
        return None
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape.values):
        return None
    return tuple(int(extent) for extent in shape.values)


def static_shape(expr: relax.Expr) -> tuple[int, ...]:
    """Shape of a tensor that legality has shown to be static."""
    shape = shape_of(expr)
    assert shape is not None, f"{expr} has a dynamic shape"
    return shape


def dtype_of(expr: relax.Expr) -> str:
    """Element type name of a tensor expression; empty for tuples and shapes."""
    return str(getattr(expr.ty, "dtype", "") or "")


def constant_value(expr: relax.Expr) -> np.ndarray | None:
    """The value of a constant, or None."""
    return expr.value.numpy() if isinstance(expr, GenericConst) else None


@dataclass(frozen=True, eq=False)
class Quantization:
    """Parameters of a quantize or dequantize call, as arrays along ``axis`` (one entry when per tensor)."""

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    dtype: str

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and zero point hold for the whole tensor."""
        return bool(np.all(self.scale == self.scale[0]) and np.all(self.zero_point == self.zero_point[0]))

    def params(self) -> QuantParams:
        """The one scale and zero point of a per-tensor quantization."""
        return QuantParams(float(self.scale[0]), int(self.zero_point[0]), DType(self.dtype))

    def expanded(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Scale and zero point shaped to broadcast against a tensor of that rank."""
        if self.scale.size == 1 and self.zero_point.size == 1:
            return self.scale.reshape(()), self.zero_point.reshape(())
        shape = [1] * rank
        shape[self.axis] = -1
        return self.scale.reshape(shape), self.zero_point.reshape(shape)


def quantization_of(call: Call) -> Quantization | None:
    """Parameters of a quantize or dequantize call; None when they are not constants."""
    scale, zero_point = constant_value(call.args[1]), constant_value(call.args[2])
    if scale is None or zero_point is None:
        return None
    scale, zero_point = np.atleast_1d(scale).astype(np.float64), np.atleast_1d(zero_point).astype(np.int64)
    count = max(scale.size, zero_point.size)
    rank = max(1, int(call.args[0].ty.ndim))
    codes = call if op_name(call) == "relax.quantize" else call.args[0]
    return Quantization(
        np.broadcast_to(scale, count), np.broadcast_to(zero_point, count), int(call.attrs.axis) % rank, dtype_of(codes)
    )


@dataclass(frozen=True, eq=False)
class View:
    """The calls of a matched group.

    Attributes:
        root: the call whose value leaves the group.
        bindings: values of the variables bound inside, in order; any other variable comes from outside.
    """

    root: Call
    bindings: Mapping[relax.Var, relax.Expr]

    @classmethod
    def of_match(cls, context: PatternCheckContext) -> View:
        """The group that TVM's matcher proposes; its bindings come unordered and are sorted here."""
        root, known = context.matched_expr, dict(context.matched_bindings.items())
        ordered: dict[relax.Var, relax.Expr] = {}

        def visit(call: relax.Expr) -> None:
            for argument in call.args if isinstance(call, Call) else ():
                if isinstance(argument, relax.Var) and argument in known and argument not in ordered:
                    visit(known[argument])
                    ordered[argument] = known[argument]

        visit(root)
        return cls(root, ordered)

    @classmethod
    def of_function(cls, function: relax.Function) -> View:
        """The body of a composite function."""
        bindings = {b.var: b.value for block in function.body.blocks for b in block.bindings}
        result = function.body.body
        root = bindings[result]
        while isinstance(root, relax.Var):
            result, root = root, bindings[root]
        return cls(root, {var: value for var, value in bindings.items() if not var.same_as(result)})

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """The value of a variable bound inside the group; the expression itself otherwise."""
        return self.bindings.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def calls(self) -> Iterator[Call]:
        """Every call of the group; the root comes last."""
        for value in self.bindings.values():
            if isinstance(value, Call):
                yield value
        yield self.root

    def find(self, *names: str) -> Call | None:
        """The first call of one of the named operators ("relax." may be left out)."""
        wanted = {name if name.startswith("relax.") else f"relax.{name}" for name in names}
        return next((call for call in self.calls() if op_name(call) in wanted), None)

    def require(self, *names: str) -> Call:
        """Like ``find`` where the pattern guarantees that there is one."""
        call = self.find(*names)
        assert call is not None, f"the group has none of {names}"
        return call

    def operand(self, expr: relax.Expr) -> Operand:
        """A float operand of a compute operator: where its values come from and how they are coded."""
        value = self.resolve(expr)
        if op_name(value) == "relax.dequantize":
            return Operand(self.resolve(value.args[0]), quantization_of(value))
        return Operand(value, None)

    def output(self) -> Quantization | None:
        """Parameters of the quantize at the root; None when the result stays float."""
        return quantization_of(self.root) if op_name(self.root) == "relax.quantize" else None


@dataclass(frozen=True, eq=False)
class Operand:
    """A source tensor (a variable from outside, or a constant) and its quantization, if any."""

    source: relax.Expr
    quant: Quantization | None

    @property
    def constant(self) -> np.ndarray | None:
        """The stored value (codes) of a constant."""
        return constant_value(self.source)

    @property
    def shape(self) -> tuple[int, ...]:
        """The source's static shape."""
        return static_shape(self.source)

    def real(self) -> np.ndarray:
        """Real values (float64) of a constant operand."""
        stored = self.constant
        assert stored is not None, "only a constant has a value"
        if self.quant is None:
            with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
                return stored.astype(np.float64)
        scale, zero_point = self.quant.expanded(stored.ndim)
        return (stored.astype(np.float64) - zero_point) * scale
