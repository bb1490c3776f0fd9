"""Prices of quantized models for the precision planner, from the analytic cost model alone: no code is generated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx

from torq_byoc.frontend import to_relax
from torq_byoc.host_module import npu_functions
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize.planning.price import Cost, Price
from torq_byoc.relay_patterns import lower_partitions, partition
from torq_byoc.relay_patterns.coverage import BOUNDARY
from torq_byoc.schedules.plan import Scheduler
from torq_byoc.schedules.techniques import Techniques

_ALONE = Techniques.without(("fusion", "residency"))
HOST_CYCLES = 1e7
"""What an operator on the CPU counts as: more than any on the NPU, so that no plan moves one there."""


def price_for(config: NpuConfig) -> Price:
    """The price of models on a machine."""

    def price(model: onnx.ModelProto) -> Mapping[str, Cost]:
        parted = partition(to_relax(model), "mixed", config)
        known = {node.name for node in model.graph.node}
        found: dict[str, Cost] = {}
        for op in parted.cpu_ops:
            if op.reason != BOUNDARY:
                found[op.node] = Cost(HOST_CYCLES)
        for graph in lower_partitions(npu_functions(parted.module), config).values():
            for origin, cost in _costs(graph, config):
                name = next((part for part in origin.split("+") if part in known), origin)
                found[name] = found.get(name, Cost()) + cost
        return found

    return price


def _costs(graph: OpGraph, config: NpuConfig) -> Iterator[tuple[str, Cost]]:
    """Origin and cost of every operator on its own."""
    for node, cost in Scheduler(graph, config, effort=0, techniques=_ALONE).alone():
        yield node.origin, Cost(cost.cycles, _bytes(graph, node))


def _bytes(graph: OpGraph, node: Node) -> float:
    """Of the result and of constant operands."""
    names = (node.output, *(name for name in node.inputs if name in graph.constants))
    return float(sum(math.prod(graph.tensors[name].shape) * graph.tensors[name].dtype.size for name in names))
