"""Collect chains of element-wise float operators over one quantized tensor into one composite each.

    quantize(f(dequantize(x))),  f = any chain of element-wise operators and scalar constants

An 8-bit tensor has 256 codes, so whatever f is, the result is one table; a data-flow pattern can only name
chains of a fixed form, hence this pass.  It runs before the pattern tables and leaves the groups as
functions with the attribute ``Composite``, as ``FuseOpsByPattern`` would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.ir import Call

from torq_byoc.relay_patterns.elementwise_functions import ELEMENTWISE_OPS
from torq_byoc.relay_patterns.origin import origin_of
from torq_byoc.relay_patterns.view import View, constant_value, op_name, quantization_of, shape_of

CHAIN = "torq.unary"
"""Composite name of a chain; the pattern table holds its lowering."""


@dataclass
class _Group:
    """A chain under construction: its inner bindings in reverse order, and the tensor it starts from."""

    members: list[relax.Var] = field(default_factory=list)
    source: relax.Expr | None = None
    parameters: tuple[float, int, str] | None = None


def group_chains(module: tvm.IRModule, accepted: Callable[[relax.Function], bool]) -> tvm.IRModule:
    """The module with every chain in a composite function of its own.

    Args:
        module: in normal form.
        accepted: whether the NPU can run a chain's function; the operators of others stay as they are.
    """
    mutator = _Grouping(module, accepted)
    names = []
    for name, function in module.functions.items():
        if isinstance(function, relax.Function) and not (function.attrs and "Composite" in function.attrs):
            names.append(name.name_hint)
            mutator.start(function)
            mutator.builder_.update_func(name, mutator.visit_expr(function))
    return relax.transform.DeadCodeElimination(names)(mutator.builder_.get())


@relax.expr_functor.mutator
class _Grouping(relax.PyExprMutator):
    """Replaces the quantize at the end of each chain by a call of the chain's function."""

    def __init__(self, module: tvm.IRModule, accepted: Callable[[relax.Function], bool]) -> None:
        super().__init__(module)
        self.accepted = accepted
        self.values: dict[relax.Var, relax.Expr] = {}
        self.readers: Counter[relax.Var] = Counter()

    def start(self, function: relax.Function) -> None:
        """Learn what defines and what reads each variable of a function."""
        self.values, self.readers = {}, Counter()
        for block in getattr(function.body, "blocks", ()):
            for binding in block.bindings:
                if isinstance(binding, relax.VarBinding):
                    self.values[binding.var] = binding.value
        relax.analysis.post_order_visit(function, self._count)

    def _count(self, expr: relax.Expr) -> None:
        arguments = expr.args if isinstance(expr, Call) else getattr(expr, "fields", ())
        self.readers.update(a for a in arguments if isinstance(a, relax.Var))

    def visit_call_(self, op: Call) -> relax.Expr:
        """A quantize that ends a chain becomes a call of the chain."""
        group = self._chain_before(op) if op_name(op) == "relax.quantize" else None
        if group is None or group.source is None:
            return super().visit_call_(op)
        function, origin = _composite(op, group, self.values)
        if not self.accepted(function):
            return super().visit_call_(op)
        name = self.builder_.add_func(function.with_attr("torq.origin", origin), "torq_unary")
        return relax.Call(name, [self.visit_expr(group.source)], None, [], op.span)

    def _chain_before(self, quantize: Call) -> _Group | None:
        quant = quantization_of(quantize)
        if quant is None or not quant.per_tensor:
            return None
        group = _Group()
        if not self._collect(quantize.args[0], group):
            return None
        inside = Counter(
            a
            for call in (quantize, *(self.values[var] for var in group.members))
            for a in call.args
            if isinstance(a, relax.Var)
        )
        closed = all(inside[var] == self.readers[var] for var in group.members)
        return group if closed and shape_of(quantize) == shape_of(group.source) else None

    def _collect(self, expr: relax.Expr, group: _Group) -> bool:
        """Add what computes ``expr``; False when it is not a function of the one tensor."""
        if not isinstance(expr, relax.Var) or expr in group.members:
            return isinstance(expr, relax.Var) or _is_scalar(expr)
        value = self.values.get(expr)
        if not isinstance(value, Call):
            return False
        if op_name(value) == "relax.dequantize":
            accepted = self._collect_source(value, group)
        elif op_name(value) in ELEMENTWISE_OPS:
            accepted = all(self._collect(argument, group) for argument in value.args)
        else:
            return False
        group.members.append(expr)
        return accepted

    def _collect_source(self, dequantize: Call, group: _Group) -> bool:
        quant = quantization_of(dequantize)
        constant = constant_value(dequantize.args[0])
        if constant is not None:
            return constant.size == 1 and quant is not None
        if quant is None or not quant.per_tensor:
            return False
        parameters = (float(quant.scale[0]), int(quant.zero_point[0]), quant.dtype)
        if group.source is None:
            group.source, group.parameters = dequantize.args[0], parameters
        return bool(dequantize.args[0].same_as(group.source)) and group.parameters == parameters


def _is_scalar(expr: relax.Expr) -> bool:
    constant = constant_value(expr)
    return constant.size == 1 if constant is not None else tvm.ir.is_prim_expr(expr)


def _composite(quantize: Call, group: _Group, values: Mapping[relax.Var, relax.Expr]) -> tuple[relax.Function, str]:
    """The chain as a function of its source tensor, and its ONNX nodes."""
    assert group.source is not None
    parameter = relax.Var("x", group.source.ty)
    renamed: dict[relax.Var, relax.Expr] = {group.source: parameter}

    def copied(call: Call) -> Call:
        arguments = [renamed.get(a, a) if isinstance(a, relax.Var) else a for a in call.args]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    builder = relax.BlockBuilder()
    with builder.function("chain", [parameter], attrs={"Composite": CHAIN, "Primitive": True}):
        with builder.dataflow():
            for var in group.members:
                renamed[var] = builder.emit(copied(values[var]), var.name)
            result = builder.emit_output(copied(quantize))
        builder.emit_func_output(result)
    inner = {var: values[var] for var in group.members}
    return builder.get()["chain"].without_attr("global_symbol"), origin_of(View(quantize, inner))
