"""Collect the borders between integer and bf16 groups into composites of their own.

    group(dequantize(x))  ->  group(to_bf16(x))        quantize(group(x))  ->  to_codes(group(x))

Only the sides of a border tell whether it belongs on the NPU, so this runs when the groups exist.  What crosses to
the CPU as floats would be narrowed to bf16; as codes it keeps its precision and is smaller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import tvm
from tvm import relax
from tvm.ir import Call

from torq_byoc.relay_patterns.origin import origin_of
from torq_byoc.relay_patterns.patterns.borders import TO_BF16, TO_CODES
from torq_byoc.relay_patterns.view import View, op_name

_BORDERS = {"relax.dequantize": TO_BF16, "relax.quantize": TO_CODES}


def group_borders(module: tvm.IRModule, accepted: Callable[[str, relax.Function], bool]) -> tvm.IRModule:
    """The module with every border of two groups in a composite function.

    Args:
        module: what runs on the NPU is grouped already, and every dequantize has one reader.
        accepted: whether the NPU can run a border, by composite name and function.
    """
    mutator = _Grouping(module, accepted)
    for name, function in module.functions.items():
        if isinstance(function, relax.Function) and not _is_composite(function):
            mutator.start(function)
            mutator.builder_.update_func(name, mutator.visit_expr(function))
    return mutator.builder_.get()


def _is_composite(function: object) -> bool:
    return isinstance(function, relax.Function) and bool(function.attrs) and "Composite" in function.attrs


@relax.expr_functor.mutator
class _Grouping(relax.PyExprMutator):
    """Replaces the borders of a function by calls of their composites."""

    def __init__(self, module: tvm.IRModule, accepted: Callable[[str, relax.Function], bool]) -> None:
        super().__init__(module)
        self.module = module
        self.accepted = accepted
        self.borders: set[Call] = set()

    def start(self, function: relax.Function) -> None:
        """Find the borders of a function."""
        bindings = [binding for block in getattr(function.body, "blocks", ()) for binding in block.bindings]
        grouped = {binding.var for binding in bindings if self._is_group(binding.value)}
        readers: defaultdict[relax.Var, list[relax.Expr]] = defaultdict(list)
        for binding in bindings:
            value = binding.value
            for argument in value.args if isinstance(value, Call) else getattr(value, "fields", ()):
                if isinstance(argument, relax.Var):
                    readers[argument].append(value)
        self.borders = set()
        for binding in bindings:
            name, var, value = op_name(binding.value), binding.var, binding.value
            enters = name == "relax.quantize" and value.args[0] in grouped
            leaves = name == "relax.dequantize" and isinstance(var, relax.DataflowVar)
            if enters or (leaves and all(map(self._is_group, readers[var]))):
                self.borders.add(value)

    def _is_group(self, value: relax.Expr) -> bool:
        return (
            isinstance(value, Call) and isinstance(value.op, tvm.ir.GlobalVar) and _is_composite(self.module[value.op])
        )

    def visit_call_(self, op: Call) -> relax.Expr:
        """A border becomes a call of its composite."""
        if op not in self.borders:
            return super().visit_call_(op)
        composite = _BORDERS[op_name(op)]
        function = _composite(composite, op)
        if not self.accepted(composite, function):
            return super().visit_call_(op)
        name = self.builder_.add_func(function, composite.replace(".", "_"))
        return relax.Call(name, [self.visit_expr(op.args[0])], None, [], op.span)


def _composite(name: str, border: Call) -> relax.Function:
    """The border as a function of what it reads."""
    parameter = relax.Var("x", border.args[0].ty)
    builder = relax.BlockBuilder()
    attributes = {"Composite": name, "Primitive": True, "torq.origin": origin_of(View(border, {}))}
    with builder.function("border", [parameter], attrs=attributes):
        with builder.dataflow():
            call = relax.Call(border.op, [parameter, *border.args[1:]], border.attrs, border.ty_args, border.span)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()["border"].without_attr("global_symbol")
