"""A partition function of the Relax module -> the operator graph that schedules and code generation work from."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax
from tvm.ir import Call

from torq_byoc.errors import InternalError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns.block_reductions import reduce_in_blocks
from torq_byoc.relay_patterns.channel_shuffles import absorb_channel_shuffles
from torq_byoc.relay_patterns.collapse_codes import collapse_codes
from torq_byoc.relay_patterns.contents import Contents
from torq_byoc.relay_patterns.distinct_names import with_distinct_names
from torq_byoc.relay_patterns.flattening import flatten_in_order
from torq_byoc.relay_patterns.fold_shifts import fold_shifts
from torq_byoc.relay_patterns.group import declare_input, lower_group, source_quantization
from torq_byoc.relay_patterns.input_orders import load_in_order
from torq_byoc.relay_patterns.legalize import legalize
from torq_byoc.relay_patterns.patterns import pattern_named
from torq_byoc.relay_patterns.pools_first import pool_first
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.separable_pools import separate_pools
from torq_byoc.relay_patterns.separable_sums import separate_sums
from torq_byoc.relay_patterns.separate_outputs import separate_outputs
from torq_byoc.relay_patterns.share_repeats import share_repeats
from torq_byoc.relay_patterns.view import View


def lower_partitions(functions: Mapping[str, relax.Function], config: NpuConfig) -> dict[str, OpGraph]:
    """Lower the partitions of a model, by symbol; no two of them share a name of a node or of a tensor inside.

    Raises:
        InternalError: a function is no partition of ours.
    """
    graphs: dict[str, OpGraph] = {}
    nodes: set[str] = set()
    tensors: set[str] = set()
    for number, (symbol, function) in enumerate(functions.items()):
        graph = with_distinct_names(lower_partition(function, config), nodes, tensors, f"@{number}")
        nodes.update(node.name for node in graph.nodes)
        tensors.update(graph.tensors)
        graphs[symbol] = graph
    return graphs


def lower_partition(function: relax.Function, config: NpuConfig) -> OpGraph:
    """Lower a partition.

    Args:
        function: a function of ``PartitionedModule`` (local composite functions, called in order).
        config: the machine.

    Returns:
        Inputs in the order of the function's parameters, outputs in the order of its result tuple.  float32
        parameters and results are BF16 tensors; quantized ones carry scale and zero point.

    Raises:
        InternalError: the function is no partition of ours.
    """
    symbol = str(function.attrs["global_symbol"]) if function.attrs and "global_symbol" in function.attrs else "main"
    builder = GraphBuilder(symbol)
    contents = Contents.of(function)
    groups, values = contents.groups, contents.values
    quantization = _input_quantization(function, contents)
    tensors: dict[relax.Var, str] = {
        parameter: declare_input(builder, parameter, quantization.get(parameter)) for parameter in function.params
    }
    for var, value in values.items():
        if isinstance(value, Call):
            composite = groups.get(value.op)
            if composite is None:
                raise _foreign(symbol, str(value.op))
            arguments = {p: tensors[a] for p, a in zip(composite.params, value.args, strict=True)}
            pattern = pattern_named(str(composite.attrs["Composite"]))
            tensors[var] = lower_group(pattern, composite, builder, config, arguments)
        elif isinstance(value, relax.Var):
            tensors[var] = tensors[value]
        elif not isinstance(value, relax.Tuple):
            raise _foreign(symbol, type(value).__name__)
    for result in _results(function, values):
        builder.output(tensors[result])
    graph = absorb_channel_shuffles(collapse_codes(fold_shifts(builder.finish()), config))
    graph = separate_pools(pool_first(flatten_in_order(graph)), config)
    graph = separate_sums(reduce_in_blocks(graph, config), config)
    return load_in_order(legalize(separate_outputs(share_repeats(graph)), config))


def _results(function: relax.Function, values: Mapping[relax.Var, relax.Expr]) -> list[relax.Var]:
    result = function.body.body
    while isinstance(result, relax.Var) and isinstance(values.get(result), relax.Var | relax.Tuple):
        result = values[result]
    return list(result.fields) if isinstance(result, relax.Tuple) else [result]


def _input_quantization(function: relax.Function, contents: Contents) -> dict[relax.Var, QuantParams]:
    """Quantization of parameters, as their readers state it; data movement passes a reader's statement on.

    Bindings are walked backwards, so what reads the result of a movement is known before the movement.
    """
    known: dict[relax.Var, QuantParams] = {}
    for var, composite, value in reversed(list(contents.calls())):
        view = View.of_function(composite)
        moves = pattern_named(str(composite.attrs["Composite"])).moves_only
        for parameter, argument in zip(composite.params, value.args, strict=True):
            quant = known.get(var) if moves else source_quantization(view, parameter)
            if quant is not None:
                known.setdefault(argument, quant)
    return {parameter: known[parameter] for parameter in function.params if parameter in known}


def _foreign(symbol: str, what: str) -> InternalError:
    return InternalError(
        "a partition holds something that no pattern made",
        where=symbol,
        why=what,
        remedy="partition the module with torq_byoc.relay_patterns.partition",
    )
