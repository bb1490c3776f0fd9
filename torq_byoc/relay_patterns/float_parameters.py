"""Constants stored as codes become floats where no integer group took them: bf16 operators read them as numbers.

conv2d(x, dequantize(int8 constant))  ->  conv2d(x, float constant)
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from torq_byoc.relay_patterns.view import View, constant_value, op_name


def float_parameters(module: tvm.IRModule) -> tvm.IRModule:
    """The module with what is left of dequantized constants computed; composite functions are untouched."""
    mutator = _Folding(module)
    for name, function in module.functions.items():
        if isinstance(function, relax.Function) and not (function.attrs and "Composite" in function.attrs):
            mutator.builder_.update_func(name, mutator.visit_expr(function))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Folding(relax.PyExprMutator):
    """Leaves out bindings of dequantized constants and hands their values to the readers."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.values: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Remember the value of a dequantized constant instead of binding it."""
        call = binding.value
        if op_name(call) == "relax.dequantize" and isinstance(binding.var, relax.DataflowVar):
            operand = View(call, {}).operand(call)
            if constant_value(call.args[0]) is not None and operand.quant is not None:
                self.values[binding.var] = relax.const(operand.real().astype(np.float32), "float32")
                return
        super().visit_var_binding_(binding)

    def visit_dataflow_var_(self, op: relax.DataflowVar) -> relax.Expr:
        """The remembered value, or the variable."""
        return self.values[op] if op in self.values else super().visit_dataflow_var_(op)
