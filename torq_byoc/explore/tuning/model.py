"""Tuning of a whole model: its partitions one by one, from and into a database of tuning records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx

from torq_byoc.codegen.passes import check_pass_names
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.numeric_model import NumericModel
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.placement import place
from torq_byoc.compilation.record_keys import graph_key, layer_key
from torq_byoc.compilation.tuning_records import RecordDatabase
from torq_byoc.errors import ScheduleError
from torq_byoc.explore.tuning.strategy import Strategy
from torq_byoc.explore.tuning.tuner import Budget, Search, tune
from torq_byoc.explore.tuning.workload import Workload
from torq_byoc.host_module import npu_functions
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.relay_patterns import lower_partitions
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


@dataclass(frozen=True)
class TuningPlan:
    """How a model is tuned.

    Attributes:
        strategy: how to search.
        trials: schedules measured for every partition beside the default.
        seconds: for all of them together; None has no limit.
        seed: of the strategy.
        profile: timing profile of the cycles.
    """

    strategy: type[Strategy]
    trials: int
    seconds: float | None = None
    seed: int = 0
    profile: str = "reference"


@dataclass(frozen=True)
class TunedPartition:
    """One partition: its name, the key of its graph, and the search; equal graphs share one search."""

    symbol: str
    key: str
    search: Search


@dataclass(frozen=True)
class TunedModel:
    """The result of ``tune_model``.

    Attributes:
        partitions: in order.
        database: with what was found.
        numbers: of the model whose partitions they are.
    """

    partitions: tuple[TunedPartition, ...]
    database: RecordDatabase
    numbers: NumericModel

    @property
    def default_cycles(self) -> int:
        """Cycles of all partitions with the default schedules."""
        return sum(partition.search.default.cycles for partition in self.partitions)

    @property
    def cycles(self) -> int:
        """Cycles of all partitions with the best schedules."""
        return sum(partition.search.best.cycles for partition in self.partitions)


def tune_model(
    model: onnx.ModelProto,
    options: Options,
    plan: TuningPlan,
    *,
    name: str,
    report: Callable[[str], None] = lambda words: None,
    keep: Callable[[RecordDatabase], None] = lambda database: None,
) -> TunedModel:
    """Search for better schedules of a model's partitions.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: as for a compilation; ``records`` is where the search starts and what it adds to.
        plan: how to search.
        name: how records call the model.
        report: called after every trial with a few words about it.
        keep: called with the database so far at every improvement, so that a search that is interrupted loses nothing.

    Raises:
        TorqError: anything wrong with the model or the options.
        ScheduleError: decisions are fixed by hand.
    """
    check_pass_names(options.disabled_passes)
    if options.decisions is not None:
        raise ScheduleError(
            "a schedule that is fixed by hand cannot be tuned",
            where=name,
            why="what a search finds is a whole schedule of its own",
            remedy="leave the schedule out, or compile with it instead",
        )
    placement = place(model, options, StageClock())
    graphs = lower_partitions(npu_functions(placement.parted.module), options.config)
    deadline = None if plan.seconds is None else time.monotonic() + plan.seconds
    database, known, tuned = options.records or RecordDatabase(), dict[str, Search](), []
    for symbol, graph in graphs.items():
        key = graph_key(graph)
        if key not in known:
            workload = Workload(symbol, graph, options, plan.profile)
            job = SearchJob(workload, database, name, report, keep)
            known[key] = job.run(plan, Budget(plan.trials, deadline))
            database = job.result(known[key])
        tuned.append(TunedPartition(symbol, key, known[key]))
    return TunedModel(tuple(tuned), database, placement)


@dataclass(frozen=True)
class SearchJob:
    """The search over one graph.

    Attributes:
        workload: the graph.
        database: where the search starts.
        model: how records call the model.
        report, keep: as for ``tune_model``.
    """

    workload: Workload
    database: RecordDatabase
    model: str
    report: Callable[[str], None]
    keep: Callable[[RecordDatabase], None]

    def run(self, plan: TuningPlan, budget: Budget) -> Search:
        """Search, and verify the best program."""
        kept = 0

        def hear(search: Search) -> None:
            nonlocal kept
            if len(search.improvements) > kept:
                kept = len(search.improvements)
                self.keep(self.result(search))
            saved = 1 - search.best.cycles / search.default.cycles
            self.report(f"{search.best.cycles} cycles, {saved:.1%} fewer, {search.infeasible} trials did not fit")

        def starts(default: DecisionRecord) -> Sequence[tuple[str, DecisionRecord]]:
            return known_starts(self.workload, self.database, default)

        search = tune(self.workload, plan.strategy, budget, plan.seed, starts=starts, report=hear)
        self.workload.verified(search.best)
        return search

    def result(self, search: Search) -> RecordDatabase:
        """The database with what was found; the search began with the record that this one replaces."""
        workload = self.workload
        return self.database.with_result(
            workload.options.config,
            workload.graph,
            search.best.record,
            model=self.model,
            setting=workload.setting,
            effort=workload.options.effort,
            cycles=(search.best.cycles, search.default.cycles),
            layers=changed_layers(workload.graph, search.default.record, search.best.record),
            remeasured=True,
        )


def known_starts(
    workload: Workload, database: RecordDatabase, default: DecisionRecord
) -> Sequence[tuple[str, DecisionRecord]]:
    """Records to begin with: what is known of the graph, and the default with what is known of its layers.

    Args:
        workload: the graph.
        database: what is known.
        default: the complete record of the default schedule.
    """
    starts = []
    entry = database.entry(workload.options.config, workload.graph, workload.setting)
    if entry is not None:
        starts.append((f"the record of {entry.model}", database.decisions(entry, workload.graph)))
    machine = database.machine(workload.options.config)
    hints = machine.hints() if machine else {}
    known = {
        node.name: hints[key]
        for node in workload.graph.nodes
        if node.name in default.nodes and (key := layer_key(workload.graph, node, default.resident)) in hints
    }
    if known.items() - default.nodes.items():
        starts.append(("layers as in other models", replace(default, nodes={**default.nodes, **known})))
    return starts


def changed_layers(graph: OpGraph, default: DecisionRecord, best: DecisionRecord) -> dict[str, NodeOverride]:
    """Decisions about nodes outside groups that the search took in another way than the default, by layer key."""
    return {
        layer_key(graph, node, best.resident): best.nodes[node.name]
        for node in graph.nodes
        if node.name in best.nodes and best.nodes[node.name] != default.nodes.get(node.name)
    }
