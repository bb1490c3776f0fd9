"""One group of operators: from its composite function to NPU operators, and a trial of that to judge legality."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from torq_byoc.errors import TorqError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for, registered_ops
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.legalize import legalize
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.origin import origin_of
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, dtype_of, op_name, quantization_of, static_shape

GROUP = "torq.group"
"""Attribute of a composite function: which match it came from."""


def group_origin(function: relax.Function) -> str:
    """ONNX nodes of a composite function."""
    named = function.attrs.get("torq.origin") if function.attrs else None
    return str(named) if named is not None else origin_of(View.of_function(function))


def refusal_reasons(pattern: Pattern, view: View, config: NpuConfig) -> list[str]:
    """Reasons against running a matched group on the NPU: the pattern's own, then those of the kernels."""
    reasons = pattern.reasons(view)
    if reasons:
        return reasons
    try:
        graph = legalize(_trial(pattern, view, config), config)
    except TorqError as error:
        return [f"{error.what}: {error.why}" if error.why else error.what]
    known = registered_ops()
    for node in graph.nodes:
        if node.op not in known:
            reasons.append(f"there is no kernel for {node.op}")
            continue
        limit = kernel_for(node.op).unsupported(graph, node, config)
        if limit is not None:
            reasons.append(f"{node.op}: {limit}")
    return list(dict.fromkeys(reasons))


def _trial(pattern: Pattern, view: View, config: NpuConfig) -> OpGraph:
    """The group alone as an operator graph."""
    builder = GraphBuilder(pattern.name)
    tensors: dict[relax.Var, str] = {}
    for var in _sources(view):
        tensors[var] = declare_input(builder, var, source_quantization(view, var))
    builder.output(pattern.lower(Lowering(builder, config, view, tensors, origin_of(view))))
    return builder.finish()


def _sources(view: View) -> list[relax.Var]:
    """Variables that the group reads and does not bind."""
    found: dict[relax.Var, None] = {}
    for call in view.calls():
        for argument in call.args:
            for expr in argument.fields if isinstance(argument, relax.Tuple) else (argument,):
                if isinstance(expr, relax.Var) and expr not in view.bindings:
                    found[expr] = None
    return list(found)


def source_quantization(view: View, var: relax.Var) -> QuantParams | None:
    """How the group reads the codes of an outer variable; None when it does not dequantize them."""
    for call in view.calls():
        if op_name(call) == "relax.dequantize" and call.args[0].same_as(var):
            quant = quantization_of(call)
            return quant.params() if quant is not None else None
    return None


def declare_input(builder: GraphBuilder, var: relax.Var, quant: QuantParams | None) -> str:
    """A graph input for a variable; float32 variables are bf16 tensors on the NPU."""
    kind = dtype_of(var)
    dtype = DType.BF16 if kind == "float32" else DType(kind)
    scale, zero_point = (quant.scale, quant.zero_point) if quant else (None, 0)
    return builder.input(var.name, static_shape(var), dtype, scale, zero_point)


def lower_group(
    pattern: Pattern,
    function: relax.Function,
    builder: GraphBuilder,
    config: NpuConfig,
    arguments: Mapping[relax.Var, str],
) -> str:
    """Emit a composite function's operators; ``arguments`` names the tensors of its parameters."""
    lowering = Lowering(builder, config, View.of_function(function), arguments, group_origin(function))
    return pattern.lower(lowering)
