"""Collapse chains of element-wise operators that depend on one 8-bit tensor alone.

    x -> act -> mul (by x) -> sum2 (with x) -> table -> mul (by x) -> y      becomes    x -> table -> y

Quantized exports round after every operator of a function that they have written out.  Whatever the chain, it maps the
256 codes of the tensor that it starts from to codes; it is evaluated on all of them in the machine's arithmetic, and
the cheapest program with the same results (``composites.code_functions``) takes its place where that takes ACT fewer
cycles than the operators that then have no reader left.  Exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Node, OpGraph, TensorInfo
from torq_byoc.kernels.reference import evaluate
from torq_byoc.kernels.rescaling import is_uniform
from torq_byoc.kernels.sum_plan import plan_sum
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites.code_functions import Program, cheapest, find_pass
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.graph_editing import fresh_name
from torq_byoc.relay_patterns.quant_params import QuantParams

_ELEMENTWISE = frozenset({"act", "mul", "sum2", "maximum", "minimum", "table"})
_MODES = frozenset({"ACT", "ABS", "NEG"})


def collapse_codes(graph: OpGraph, config: NpuConfig) -> OpGraph:
    """The graph with every chain of which a cheaper program makes the same codes replaced by that program.

    Inner tensors of a chain come before its last: what is left of it once they are cheap decides about the whole.
    """
    roots = _roots(graph)
    for node in graph.nodes:
        info, root = graph.tensors.get(node.output), roots.get(node.output)
        if info is not None and _has_codes(info) and root not in (None, node.output):
            shorter = _without_chain(graph, roots, node, config)
            if shorter is not graph:
                graph, roots = shorter, _roots(shorter)
    return graph


def _roots(graph: OpGraph) -> dict[str, str]:
    """For tensors that are functions of the codes of one 8-bit tensor: the first such tensor, maybe themselves."""
    roots = {name: name for name in graph.inputs if _has_codes(graph.tensors[name])}
    for node in graph.nodes:
        found = {roots.get(name, "") for name in node.inputs if name not in graph.constants}
        if len(found) == 1 and "" not in found and _is_function(graph, node):
            roots[node.output] = found.pop()
        elif _has_codes(graph.tensors[node.output]):
            roots[node.output] = node.output
    return roots


def _has_codes(info: TensorInfo) -> bool:
    return info.dtype in (DType.INT8, DType.UINT8)


def _is_function(graph: OpGraph, node: Node) -> bool:
    """Whether each result depends on the elements at its own place, and on nothing that varies from place to place."""
    if node.op not in _ELEMENTWISE or node.attrs.get("mode", "ACT") not in _MODES:
        return False
    if node.rescale is not None and not is_uniform(node.rescale):
        return False
    shape = graph.tensors[node.output].shape
    operands = [graph.tensors[name] for name in (*node.inputs, node.output)]
    placed = all(
        graph.constants[name].size == 1 if name in graph.constants else graph.tensors[name].shape == shape
        for name in node.inputs
    )
    return placed and not any(info.dtype.is_float for info in operands)


def _without_chain(graph: OpGraph, roots: dict[str, str], last: Node, config: NpuConfig) -> OpGraph:
    """The graph with a program in place of what makes one tensor, if that is cheaper."""
    idle = _idle_without(graph, roots, last)
    saved = sum(_cycles(graph, node, config) for node in idle)
    one_pass = 1.0 / config.act_width(DType.INT8, None)
    if saved <= one_pass:
        return graph
    root = graph.tensors[roots[last.output]]
    source, out = _quantization(root), _quantization(graph.tensors[last.output])
    results = _results(graph, roots, last)
    program: Program | None = find_pass(results, source, out)
    if program is None and saved > 2 * one_pass:
        program = cheapest(results, source, out, config)
    if program is None or program.cycles(config) >= saved:
        return graph
    return _spliced(graph, idle, last, root, program)


def _idle_without(graph: OpGraph, roots: dict[str, str], last: Node) -> list[Node]:
    """A node and those of its chain that nobody else needs, in order."""
    readers = graph.consumers()
    idle = {last.output}
    for node in reversed(graph.nodes):
        users = readers[node.output]
        if roots.get(node.output) != roots[last.output] or node.output in graph.outputs or not users:
            continue
        if node.output != roots[last.output] and all(user.output in idle for user in users):
            idle.add(node.output)
    return [node for node in graph.nodes if node.output in idle]


def _cycles(graph: OpGraph, node: Node, config: NpuConfig) -> float:
    """ACT cycles a result of an element-wise node."""
    data = graph.tensors[node.inputs[0]].dtype
    weight = graph.tensors[node.inputs[1]].dtype if node.op == "mul" else None
    if node.op == "sum2":
        plan = plan_sum(graph, node)
        weight = DType.of(plan.weights.dtype) if plan is not None and plan.weights is not None else None
    return 1.0 / config.act_width(data, weight, table=node.op == "table")


def _quantization(info: TensorInfo) -> QuantParams:
    """What is known of a tensor's codes; for those without a scale only their zero point and type matter."""
    return QuantParams(info.scale if info.scale is not None else 1.0, info.zero_point, info.dtype)


def _results(graph: OpGraph, roots: dict[str, str], last: Node) -> np.ndarray:
    """The results of a chain for all codes of its root, ascending: int64[256]."""
    root = roots[last.output]
    needed: dict[str, None] = {last.output: None}
    nodes = []
    for node in reversed(graph.nodes):
        if node.output in needed and node.output != root:
            nodes.append(replace(node, rescale=replace(node.rescale, axis=None) if node.rescale else None))
            needed.update(dict.fromkeys(node.inputs))
    low, high = graph.tensors[root].dtype.integer_range
    codes = np.arange(low, high + 1).astype(graph.tensors[root].dtype.numpy)
    constants = {name: graph.constants[name].reshape(1) for name in needed if name in graph.constants}
    tensors = {name: replace(graph.tensors[name], shape=(1,) if name in constants else codes.shape) for name in needed}
    chain = OpGraph(graph.name, (root,), (last.output,), tensors, constants, tuple(reversed(nodes)))
    return evaluate(chain, {root: codes})[last.output].astype(np.int64)


def _spliced(graph: OpGraph, idle: list[Node], last: Node, root: TensorInfo, program: Program) -> OpGraph:
    """The graph with the program's nodes where the last idle one was."""
    builder = GraphBuilder(graph.name)
    source = builder.input(root.name, root.shape, root.dtype, root.scale, root.zero_point)
    origin = "+".join(dict.fromkeys(part for node in idle for part in node.origin.split("+") if part))
    made = program.emit(
        Emitter(builder, origin), source, _quantization(root), _quantization(graph.tensors[last.output])
    )
    part = builder.finish()
    names = {root.name: root.name, made: last.output}
    for name in part.tensors:
        if name not in names:
            taken = {*graph.tensors, *names.values()}
            names[name] = fresh_name(f"{last.output}_{part.tensors[name].name.split('.')[-1]}", taken)
    gone = {node.output for node in idle}
    tensors = {name: info for name, info in graph.tensors.items() if name not in gone - {last.output}}
    tensors |= {name: replace(part.tensors[old], name=name) for old, name in names.items() if name not in graph.tensors}
    program_nodes = [
        replace(
            node, name=names[node.output], inputs=tuple(names[name] for name in node.inputs), output=names[node.output]
        )
        for node in part.nodes
    ]
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output == last.output:
            nodes += program_nodes
        elif node.output not in gone:
            nodes.append(node)
    constants = {**graph.constants} | {names[name]: value for name, value in part.constants.items()}
    return replace(graph, nodes=tuple(nodes), tensors=tensors, constants=constants)
