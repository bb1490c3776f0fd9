"""From a partition to a verified program: schedule, generate, verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tvm import relax

from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.codegen.hl import CallProgram, RunProgram
from torq_byoc.codegen.text import format_program
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compiled_model import Layer, Partition, PartitionFacts
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.container import pack_container
from torq_byoc.npu_model.timing import Timeline, dma_cycles
from torq_byoc.npu_model.verifier import verify
from torq_byoc.relay_patterns import lower_partition
from torq_byoc.schedules.fusion.search import PricedGroups
from torq_byoc.schedules.node_tiles import scheduled_function
from torq_byoc.schedules.plan import Plan, Schedule, Scheduler
from torq_byoc.schedules.record import DecisionRecord
from torq_byoc.schedules.techniques import Techniques
from torq_byoc.schedules.tensor_expressions import defined_ops

BUDGETS: tuple[float, ...] = (1.0, 0.9, 0.8, 0.65, 0.5)
"""Shares of the LRAM that a schedule may plan with, tried until its tiles can be laid out."""
WASTEFUL_BUDGETS: tuple[float, ...] = (0.35, 0.25)
"""More shares, for programs without the passes that save the LRAM what the schedule counts on."""
PLAUSIBLE = 1.1
"""Estimate of a rival schedule over the cycles of the chosen one, up to which it may turn out to be faster."""

LESS_MEMORY_EFFORT = 2
"""Effort from which on the plans of machines with less LRAM are tried."""
WORTH_HALVING = 0.02
"""Cycles in which programs are loaded over those of everything, from which on half the slices may be faster."""

Candidate = tuple[Schedule, GeneratedProgram]
Seen = list[tuple[str, str]]
"""Levels of IR and their text, for the observer of a request whose candidate wins."""


def compile_function(symbol: str, function: relax.Function, options: Options | None = None) -> Partition:
    """Compile one partition of a module to a verified program.

    Raises:
        LramOverflowError: an operator cannot be tiled into the LRAM.
        VerificationError: a defect of ours; the program is not safe.
    """
    options = options or Options()
    return compile_graph(symbol, lower_partition(function, options.config), options)


def compile_graph(symbol: str, graph: OpGraph, options: Options, clock: StageClock | None = None) -> Partition:
    """Schedule, generate and verify the program of an operator graph (see ``compile_function``)."""
    clock = clock or StageClock()
    plan, generated = schedule_and_generate(graph, options, clock)
    for entry in generated.ledger:
        clock.record_pass(entry.name, entry.seconds)
    with clock.stage("verify"):
        verify(generated.program)
    facts = PartitionFacts(
        symbol=symbol,
        lram_peak=generated.lram_peak,
        layers=_layers(graph, plan, generated),
        passes=tuple((entry.name, entry.saved) for entry in generated.ledger),
        decisions=plan.record.dumps(),
    )
    return Partition(facts, pack_container(generated.program.to_sections()))


def schedule_and_generate(graph: OpGraph, options: Options, clock: StageClock) -> Candidate:
    """The schedule that the search prefers, or that of a smaller machine where it simulates faster.

    Every slice loads programs of its own, so more slices may take longer where loading is what takes time: the search
    with half the slices is doubted in the same way.  From effort 2 on, what it plans with less LRAM is tried too.
    """
    seen, unseen = _unseen(options)
    chosen = _with_or_without_groups(graph, unseen, clock)
    for rival_of in (_planned_with_less, _on_half_the_slices) if _is_free(graph, options) else ():
        rival = rival_of(graph, options, chosen, clock)
        if rival is not None:
            chosen, seen = rival
    _show(seen, options)
    return chosen


def _planned_with_less(
    graph: OpGraph, options: Options, chosen: Candidate, clock: StageClock
) -> tuple[Candidate, Seen] | None:
    """The fastest among the schedules for a half, a quarter, ... of the LRAM, as long as they are plausible; None when
    that is no faster."""
    best, lram = None, options.config.lram_bytes // 2
    while options.effort >= LESS_MEMORY_EFFORT:
        cycles = _cycles(chosen)
        smaller = _Search(graph, replace(options, config=replace(options.config, lram_bytes=lram)), clock)
        seen, unseen = _unseen(options)
        try:
            rival = smaller.laid_out(Scheduler.best, unseen, PLAUSIBLE * cycles)
        except LramOverflowError:
            break
        if rival is None:
            break
        if _cycles(rival) < cycles:
            best, chosen = (rival, seen), rival
        lram //= 2
    return best


def _on_half_the_slices(
    graph: OpGraph, options: Options, chosen: Candidate, clock: StageClock
) -> tuple[Candidate, Seen] | None:
    """What is chosen for half the slices; None when that cannot be faster, or is not."""
    timeline, slices = chosen[1].timeline, _slices(graph, options) // 2
    if not (slices and _may_do_with(timeline, slices) and _loads_many_programs(chosen[1], timeline, options.config)):
        return None
    decisions = options.decisions or DecisionRecord()
    half = replace(decisions, slices={node.name: slices for node in _scheduled(graph)})
    seen, unseen = _unseen(replace(options, decisions=half))
    try:
        rival = schedule_and_generate(graph, unseen, clock)
    except LramOverflowError:
        return None
    return (rival, seen) if _cycles(rival) < timeline.total_cycles else None


def _scheduled(graph: OpGraph) -> list[Node]:
    return [node for node in graph.nodes if node.op not in ALIAS_OPS]


def _is_free(graph: OpGraph, options: Options) -> bool:
    """Whether no record decides about nodes or groups, so that other plans may be tried."""
    decisions = options.decisions or DecisionRecord()
    return not (decisions.groups or any(node.name in decisions.nodes for node in _scheduled(graph)))


def _slices(graph: OpGraph, options: Options) -> int:
    """Slices that all nodes may use; 0 where a record gives them different numbers."""
    given = (options.decisions or DecisionRecord()).slices
    known = {given.get(node.name, options.config.slices) for node in _scheduled(graph)}
    return known.pop() if len(known) == 1 else 0


def _may_do_with(timeline: Timeline, slices: int) -> bool:
    """Whether so many slices could do the same work in the time of a program, were there nothing else to wait for."""
    work = sum(cycles for track, cycles in timeline.busy.items() if track.startswith("slice"))
    return work <= slices * timeline.total_cycles


def _loads_many_programs(generated: GeneratedProgram, timeline: Timeline, config: NpuConfig) -> bool:
    """Whether it could matter that fewer slices load fewer programs."""
    nbytes = sum(entry.get("in_program", 0) for entry in generated.layer_bytes.values())
    return dma_cycles(nbytes, config) >= WORTH_HALVING * timeline.total_cycles


def _with_or_without_groups(graph: OpGraph, options: Options, clock: StageClock) -> Candidate:
    """The schedule that the search prefers, or the same search's without fused groups where that simulates faster.

    Groups that a record fixes are not doubted.
    """
    search = _Search(graph, options, clock)
    seen, unseen = _unseen(options)
    chosen = search.laid_out(Scheduler.best, unseen)
    assert chosen is not None, "there is no limit to what it may cost"
    if chosen[0].groups and not (options.decisions and options.decisions.groups is not None):
        rival = _ungrouped(search, options, chosen)
        if rival is not None:
            chosen, seen = rival
    _show(seen, options)
    return chosen


def _ungrouped(search: _Search, options: Options, chosen: Candidate) -> tuple[Candidate, Seen] | None:
    """The search's schedule without fused groups; None when that is no faster."""
    cycles = _cycles(chosen)
    seen, unseen = _unseen(options)
    try:
        rival = search.laid_out(Scheduler.without_groups, unseen, PLAUSIBLE * cycles)
    except LramOverflowError:
        return None
    return None if rival is None or _cycles(rival) >= cycles else (rival, seen)


def _unseen(options: Options) -> tuple[Seen, Options]:
    """A request whose levels of IR are kept for later, and where."""
    seen: Seen = []
    return seen, replace(options, observe=(lambda *shown: seen.append(shown)) if options.observe else None)


def _show(seen: Seen, options: Options) -> None:
    if options.observe:
        for level, text in seen:
            options.observe(level, text)


def _cycles(candidate: Candidate) -> int:
    return candidate[1].timeline.total_cycles


class _Search:
    """The search for schedules of one graph that can be laid out; what it finds out is kept from one to the next."""

    def __init__(self, graph: OpGraph, options: Options, clock: StageClock) -> None:
        self.graph, self.options, self.clock = graph, options, clock
        self._schedulers: dict[tuple[float, int], Scheduler] = {}
        self._priced: PricedGroups = {}

    def laid_out(
        self, planned: Callable[[Scheduler], Plan], options: Options, limit: float = float("inf")
    ) -> Candidate | None:
        """Schedule with as much LRAM as leads to a layout; in the last resort without fused groups (effort 0).

        Args:
            planned: which of a scheduler's plans.
            options: those of the search, with the observer of this schedule.
            limit: cycles that it may be expected to take.

        Returns:
            None when more cycles than the limit are expected.
        """
        budgets = (*BUDGETS, *WASTEFUL_BUDGETS) if options.disabled_passes else BUDGETS
        attempts = [*((budget, options.effort) for budget in budgets), (budgets[-1], 0)]
        for attempt in attempts:
            with self.clock.stage("schedule"):
                scheduler = self._scheduler(*attempt)
                plan = planned(scheduler)
                if plan.expected > limit:
                    return None
                schedule = scheduler.schedule(plan)
            options.show("scheduled/tir", partial(_scheduled_text, self.graph, schedule))
            try:
                return schedule, self._generated(schedule, options)
            except LramOverflowError:
                if attempt == attempts[-1]:
                    raise
        raise AssertionError("the last attempt either returns or raises")

    def _scheduler(self, budget: float, effort: int) -> Scheduler:
        """A scheduler for a share of the LRAM."""
        options, key = self.options, (budget, effort)
        if key not in self._schedulers:
            decisions = options.decisions
            if decisions is not None:
                decisions = decisions.restricted_to({node.name for node in self.graph.nodes}, self.graph.tensors)
            techniques = Techniques.without(options.disabled_passes)
            self._schedulers[key] = Scheduler(
                self.graph, options.config, effort, decisions, budget, techniques, self._priced
            )
        return self._schedulers[key]

    def _generated(self, schedule: Schedule, options: Options) -> GeneratedProgram:
        def observe(name: str, program: CallProgram | RunProgram) -> None:
            options.show(f"torq_hl/{name}", lambda: format_program(program))

        with self.clock.stage("generate"):
            return generate(
                self.graph,
                schedule,
                options.config,
                disabled=options.disabled_passes,
                observe=observe if options.observe else None,
            )


def _layers(graph: OpGraph, plan: Schedule, generated: GeneratedProgram) -> tuple[Layer, ...]:
    """What reports show of each node, in the order of the schedule."""
    nodes = {node.name: node for node in graph.nodes}
    layers = []
    for entry in plan.nodes:
        node = nodes[entry.node]
        info = graph.tensors[node.output]
        layers.append(
            Layer(
                node=node.name,
                origin=node.origin,
                op=node.op,
                tiles=len(entry.tiles),
                macs=kernel_for(node.op).macs(graph, node),
                output_shape=info.shape,
                dtype=info.dtype.value,
                resident=node.output in plan.resident,
                estimate=float(entry.estimate),
                bytes=generated.layer_bytes.get(node.name, {}),
            )
        )
    return tuple(layers)


def _scheduled_text(graph: OpGraph, plan: Schedule) -> str:
    """The scheduled TIR function of every node, each under its decision and its cost."""
    nodes = {node.name: node for node in graph.nodes}
    parts = []
    for entry in plan.nodes:
        node = nodes[entry.node]
        parts.append(
            f"# {entry.node}: {entry.decision}, {len(entry.tiles)} tiles, {entry.estimate:.0f} cycles expected"
        )
        if node.op in defined_ops():
            parts.append(scheduled_function(graph, node, entry.on_its_own()).mod.script(show_meta=False))
    return "\n".join(parts) + "\n"
