"""Small graphs to tune: a fraction of a second a trial."""

from __future__ import annotations

from dataclasses import replace

from schedules.models import residual

from torq_byoc.compilation.options import Options
from torq_byoc.explore.tuning.space import Space
from torq_byoc.explore.tuning.subject import Subject
from torq_byoc.explore.tuning.workload import Measured, Workload
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeOverride


def small_workload(graph: OpGraph | None = None) -> Workload:
    """A residual block."""
    return Workload("block", graph or residual(size=14, channels=8, blocks=1), Options(), "reference")


class Poor(Workload):
    """The block with a default that is bad on purpose, however good the analytic search is."""

    def measure(self, record: DecisionRecord | None) -> Measured:
        """The first layer row by row without overlap, no group, and nothing stays in LRAM."""
        return super().measure(poor(self.graph) if record is None else record)


def poor_workload(graph: OpGraph | None = None) -> Workload:
    """See ``Poor``."""
    plain = small_workload(graph)
    return Poor(plain.symbol, plain.graph, plain.options, plain.profile)


def poor(graph: OpGraph) -> DecisionRecord:
    """See ``Poor``."""
    stem, *others = graph.nodes
    rows = NodeOverride(tile=(1, 8, 1, 14), buffers=1)
    return DecisionRecord({stem.name: rows}, {node.output: False for node in (stem, *others[:-1])}, ())


def grouped() -> DecisionRecord:
    """The block's last three layers as one group in two bands."""
    names = tuple(node.name for node in small_workload().graph.nodes[1:])
    return DecisionRecord(groups=(GroupDecision(names, axis=2, size=7, split_axes=(1, 1, 1), buffers=2),))


def space_around(workload: Workload, measured: Measured) -> Space:
    """The space whose base is a measured schedule."""
    options, record = workload.options, measured.record
    subject = Subject(workload.graph, options.config, record.slices)
    return Space(subject, record, measured.estimates)


def renamed(graph: OpGraph, prefix: str) -> OpGraph:
    """The same graph with other names of nodes and tensors, and with other weights."""

    def new(name: str) -> str:
        return prefix + name

    return OpGraph(
        prefix + graph.name,
        tuple(map(new, graph.inputs)),
        tuple(map(new, graph.outputs)),
        {new(name): replace(info, name=new(name)) for name, info in graph.tensors.items()},
        {new(name): value[::-1].copy() for name, value in graph.constants.items()},
        tuple(
            replace(node, name=new(node.name), inputs=tuple(map(new, node.inputs)), output=new(node.output))
            for node in graph.nodes
        ),
    )
