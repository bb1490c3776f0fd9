"""The analytic model against the simulator: cycles of every layer of the zoo on its own.

Usage::

    python -m benchmarks.model_error [NETWORK | MODEL.onnx ...] [--precision int8] [--worst 20] [--json FILE]

A layer is what the schedule runs as one: a node, or a fused group.  Each is cut out of its network with the decision
that it has there, operands in XRAM, scheduled and generated alone; its estimate is compared with the cycles of its
simulated program.  Inside a network layers overlap and pass tensors on in LRAM, so there are no cycles of its own to
compare with.  Layers that are alike count once a network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table

from benchmarks.zoo import Job, arguments, job, networks, op_graphs
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.schedules.record import DecisionRecord, NodeDecision
from torq_byoc.schedules.scheduled import NodeSchedule, Schedule
from torq_byoc.schedules.signature import signature


@dataclass(frozen=True)
class Comparison:
    """One layer: cycles that the model expects and that the simulator counts."""

    network: str
    layer: str
    ops: str
    tiles: int
    estimate: float
    cycles: int

    @property
    def error(self) -> float:
        """Relative to the simulator; positive where the model expects too much."""
        return self.estimate / self.cycles - 1


def units(plan: Schedule) -> list[list[NodeSchedule]]:
    """The entries of a schedule, those of a group together."""

    def key(entry: NodeSchedule) -> object:
        return entry.node if isinstance(entry.decision, NodeDecision) else entry.decision.nodes

    return [list(entries) for _, entries in groupby(plan.nodes, key)]


def cut_out(graph: OpGraph, names: Sequence[str]) -> OpGraph:
    """The graph of some neighbouring nodes, with the aliases between them; what they read becomes inputs."""
    positions = [index for index, node in enumerate(graph.nodes) if node.name in names]
    nodes = graph.nodes[positions[0] : positions[-1] + 1]
    made = {node.output for node in nodes}
    inside = {node.name for node in nodes}
    read = dict.fromkeys(name for node in nodes for name in node.inputs)
    constants = {name: graph.constants[name] for name in read if name in graph.constants}
    users = graph.consumers()
    outputs = tuple(
        node.output
        for node in nodes
        if node.output in graph.outputs or any(user.name not in inside for user in users[node.output])
    )
    inputs = tuple(name for name in read if name not in made and name not in constants)
    tensors = {name: graph.tensors[name] for name in (*read, *made)}
    return OpGraph(graph.name, inputs, outputs, tensors, constants, nodes)


def comparisons(job: Job) -> Iterator[Comparison]:
    """Every kind of layer of a network."""
    seen = set()
    for graph in op_graphs(job).values():
        plan = fastest_candidate(graph, job.options, StageClock()).schedule
        nodes = {node.name: node for node in graph.nodes}
        for entries in units(plan):
            names = [entry.node for entry in entries]
            shapes = tuple(tuple(tile.output for tile in entry.tiles) for entry in entries)
            kind = (tuple(signature(graph, nodes[name]) for name in names), shapes)
            if kind not in seen:
                seen.add(kind)
                ops = "+".join(nodes[name].op for name in names)
                estimate, cycles = _alone(cut_out(graph, names), _record(entries), job.options)
                yield Comparison(job.name, names[-1], ops, len(entries[-1].tiles), estimate, cycles)


def _record(entries: Sequence[NodeSchedule]) -> DecisionRecord:
    """The decisions of one layer, alone."""
    (decision,) = {entry.decision for entry in entries}
    if isinstance(decision, NodeDecision):
        return DecisionRecord({entries[0].node: decision.to_override()}, groups=())
    return DecisionRecord(groups=(decision,))


def _alone(graph: OpGraph, record: DecisionRecord, options: Options) -> tuple[float, int]:
    """Estimate and cycles of a layer on its own; one that needs its operands resident to fit is decided anew."""
    for decisions in (record, DecisionRecord()):
        try:
            request = Options(config=options.config, effort=options.effort, decisions=decisions)
            found = fastest_candidate(graph, request, StageClock())
        except (LramOverflowError, ScheduleError):
            continue
        return sum(entry.estimate for entry in found.schedule.nodes), found.cycles
    raise AssertionError(f"{graph.nodes[-1].name} has no schedule of its own")


def summary(found: Sequence[Comparison]) -> dict[str, float]:
    """Mean and worst absolute error, plain and weighed by cycles."""
    errors = [abs(comparison.error) for comparison in found]
    cycles = [comparison.cycles for comparison in found]
    return {
        "layers": len(found),
        "mean": sum(errors) / len(errors),
        "weighed_mean": sum(e * c for e, c in zip(errors, cycles, strict=True)) / sum(cycles),
        "worst": max(errors),
        "over_10_percent": sum(error > 0.1 for error in errors),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--worst", type=int, default=20, help="layers shown, those with the largest errors")
    options = parser.parse_args()
    found: list[Comparison] = []
    table = Table("network", "layers", "mean error", "mean by cycles", "worst", "over 10 %", box=None)
    for network in networks(options.networks):
        own = list(comparisons(job(network, options.precision)))
        found += own
        table.add_row(network.name, *_cells(own))
    table.add_row("all", *_cells(found))
    worst = Table("network", "layer", "operators", "tiles", "estimate", "cycles", "error", box=None)
    for c in sorted(found, key=lambda c: -abs(c.error))[: options.worst]:
        worst.add_row(c.network, c.layer, c.ops, str(c.tiles), f"{c.estimate:,.0f}", f"{c.cycles:,}", f"{c.error:+.1%}")
    console = Console(width=200)
    console.print(table)
    console.print(worst)
    if options.json:
        rows = [{**asdict(comparison), "error": comparison.error} for comparison in found]
        text = json.dumps({"summary": summary(found), "layers": rows}, indent=2, sort_keys=True)
        options.json.write_text(text, encoding="utf-8")


def _cells(found: Sequence[Comparison]) -> list[str]:
    figures = summary(found)
    percents = (f"{figures[key]:.1%}" for key in ("mean", "weighed_mean", "worst"))
    return [str(figures["layers"]), *percents, str(figures["over_10_percent"])]


if __name__ == "__main__":
    main()
