"""Whether TVM can make code of every operator that stays on the CPU: found out when compiling, not when running."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax

from torq_byoc.errors import UnsupportedOpError

_BUILT_LATER = frozenset(
    f"relax.{name}" for name in ("call_tir", "call_dps_packed", "sort", "argsort", "topk", "cumsum", "cumprod")
)
"""What is no operator any more after legalization, and operators that a later pass of TVM's pipeline takes."""


def check_operators(module: tvm.IRModule) -> None:
    """Refuse a host module that cannot be built.

    Args:
        module: operators and calls of the runtime, as ``with_runtime_calls`` leaves them.

    Raises:
        UnsupportedOpError: names every operator that TVM has no code for, with its node.
    """
    if not _fault(module):
        return
    faults = [(call, fault) for call in _calls(module["main"]) if (fault := _fault(_alone(call)))]
    names = [f"{call.op.name.removeprefix('relax.')} (node {_node(call)!r})" for call, _ in faults]
    raise UnsupportedOpError(
        "operators of the model run on the CPU, and TVM has no code for this form of them",
        where=", ".join(names),
        why="; ".join(dict.fromkeys(fault for _, fault in faults)) or _fault(module),
        remedy="simplify these nodes in the exporting framework, or cut the model before them",
        details={"nodes": [_node(call) for call, _ in faults]},
    )


def _fault(module: tvm.IRModule) -> str:
    """Why a module's operators cannot be lowered; empty when they can."""
    try:
        lowered = relax.transform.LegalizeOps()(module)
    except Exception as error:  # TVM's lowering rules refuse with whatever exception is at hand
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[-1] if lines else ''}"
    left = sorted({call.op.name for call in _calls(lowered["main"])} - _BUILT_LATER)
    return f"no lowering of {', '.join(left)}" if left else ""


def _calls(function: relax.Function) -> Iterator[tvm.ir.Call]:
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
                yield value


def _alone(call: tvm.ir.Call) -> tvm.IRModule:
    """A module that does nothing but this call."""
    parameters: list[relax.Var] = []

    def opened(argument: relax.Expr) -> relax.Expr:
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([opened(field) for field in argument.fields])
        if not isinstance(argument, relax.Var):
            return argument
        parameters.append(relax.Var(f"x{len(parameters)}", argument.ty))
        return parameters[-1]

    arguments = [opened(argument) for argument in call.args]
    result = relax.Var("y", call.ty)
    value = relax.Call(call.op, arguments, call.attrs, call.ty_args)
    relax.expr._update_type(value, call.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, value)])], result)
    function = relax.Function(parameters, body, call.ty).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function})


def _node(call: tvm.ir.Call) -> str:
    return str(call.span.source_name.name) if call.span is not None else call.op.name
