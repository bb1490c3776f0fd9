"""Faults of lowering: operator graphs whose integers are not those that the quantized model means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.accuracy.fault import Fault
from benchmarks.accuracy.fault_subjects import Subject
from benchmarks.accuracy.program_editor import permuted, with_partition
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.intent import layer_name
from torq_byoc.compilation.programs import compile_graph
from torq_byoc.kernels.graph import Node, OpGraph, Rescale

Change = Callable[[OpGraph, Node, np.random.Generator], OpGraph | None]
"""The graph with a fault in a node; None where it cannot be made there."""


def _in_graph(kind: str, change: Change) -> Callable[[Subject, np.random.Generator], Fault | None]:
    """An injector that changes a graph, and compiles its program anew."""

    def inject(subject: Subject, rng: np.random.Generator) -> Fault | None:
        stages = subject.stages
        symbol = str(rng.choice(sorted(stages.graphs)))
        graph = stages.graphs[symbol]
        node = graph.nodes[int(rng.integers(len(graph.nodes)))]
        changed = change(graph, node, rng)
        if changed is None:
            return None
        options = replace(stages.options, decisions=stages.compiled.decisions())
        partition = compile_graph(symbol, changed, options)
        faulty = replace(stages, graphs={**stages.graphs, symbol: changed})
        return Fault(kind, Stage.ROUNDING, (layer_name(node),), node.name, with_partition(faulty, partition))

    return inject


def _rescaled(graph: OpGraph, node: Node, rescale: Rescale) -> OpGraph:
    changed = replace(node, rescale=rescale)
    return replace(graph, nodes=tuple(changed if other is node else other for other in graph.nodes))


def _wrong_shift(graph: OpGraph, node: Node, rng: np.random.Generator) -> OpGraph | None:
    if node.rescale is None or node.rescale.scale is None or not node.rescale.shift:
        return None
    return _rescaled(graph, node, replace(node.rescale, shift=node.rescale.shift + int(rng.choice([-1, 1]))))


def _no_zero_point(graph: OpGraph, node: Node, rng: np.random.Generator) -> OpGraph | None:
    del rng
    if node.rescale is None or not node.rescale.zero_point:
        return None
    return _rescaled(graph, node, replace(node.rescale, zero_point=0))


def _swapped_scales(graph: OpGraph, node: Node, rng: np.random.Generator) -> OpGraph | None:
    scale = node.rescale.scale if node.rescale else None
    if scale is None or scale.size < 2:
        return None
    assert node.rescale is not None
    return _rescaled(graph, node, replace(node.rescale, scale=scale[permuted(rng, scale.size)]))


def _permuted_weights(graph: OpGraph, node: Node, rng: np.random.Generator) -> OpGraph | None:
    names = [name for name in node.inputs if name in graph.constants and graph.constants[name].ndim > 1]
    if not names or node.op not in ("conv2d", "matmul"):
        return None
    value = graph.constants[names[0]]
    shuffled = value.reshape(-1)[permuted(rng, value.size)].reshape(value.shape)
    return replace(graph, constants={**graph.constants, names[0]: shuffled})


def _swapped_channels(graph: OpGraph, node: Node, rng: np.random.Generator) -> OpGraph | None:
    names = [name for name in node.inputs if name in graph.constants]
    if not names or node.op != "conv2d":
        return None
    value = graph.constants[names[0]].copy()
    first, second = rng.choice(len(value), 2, replace=False)
    value[[first, second]] = value[[second, first]]
    return replace(graph, constants={**graph.constants, names[0]: value})


GRAPH = (
    _in_graph("shift wrong", _wrong_shift),
    _in_graph("zero point dropped", _no_zero_point),
    _in_graph("scale swapped", _swapped_scales),
    _in_graph("weights permuted", _permuted_weights),
    _in_graph("channels swapped", _swapped_channels),
)
