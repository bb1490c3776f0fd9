"""Candidates: schedules of a graph that could be laid out in LRAM, with their programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.codegen.hl import CallProgram, RunProgram
from torq_byoc.codegen.text import format_program
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.schedules.node_tiles import scheduled_function
from torq_byoc.schedules.plan import Scheduler
from torq_byoc.schedules.priced import Priced
from torq_byoc.schedules.scheduled import Schedule
from torq_byoc.schedules.techniques import Techniques
from torq_byoc.schedules.tensor_expressions import defined_ops
from torq_byoc.schedules.unit_plan import Plan, Settled

BUDGETS: tuple[float, ...] = (1.0, 0.95, 0.9, 0.8, 0.65, 0.5)
"""Shares of the LRAM that a schedule may plan with, tried until its tiles can be laid out."""
WASTEFUL_BUDGETS: tuple[float, ...] = (0.35, 0.25)
"""More shares, for programs without the passes that save the LRAM what the schedule counts on."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule and its program.

    Attributes:
        schedule, generated: the two.
        levels: level and text of its IR on the way, where a request asks for that.
    """

    schedule: Schedule
    generated: GeneratedProgram
    levels: tuple[tuple[str, str], ...] = ()

    @property
    def cycles(self) -> int:
        """What its program takes, simulated."""
        return self.generated.timeline.total_cycles

    @property
    def rank(self) -> int:
        """Cycles with a channel for either direction, and what it takes at least where both share one: alike."""
        busy = self.generated.timeline.busy
        return self.cycles + max(self.cycles, busy["dma_in"] + busy["dma_out"])


class CandidateSearch:
    """The search for candidates of one graph; what it finds out is kept from one to the next.

    Args:
        graph: operators in topological order.
        options: the request.
        clock: gets the seconds of the stages.
        share: of the LRAM, the most that schedules may plan with.
    """

    def __init__(self, graph: OpGraph, options: Options, clock: StageClock, share: float = 1.0) -> None:
        self.graph, self.options, self.clock, self.share = graph, options, clock, share
        self._schedulers: dict[tuple[float, int], Scheduler] = {}
        self._plans: dict[tuple[float, int, Callable[[Scheduler], Plan]], Plan] = {}
        self._priced = Priced()
        self._laid_out: set[Settled] = set()
        self._failed: dict[Settled, LramOverflowError] = {}

    def narrowed(self, share: float) -> CandidateSearch:
        """The same search with less of the LRAM; candidates of both are found once."""
        other = CandidateSearch(self.graph, self.options, self.clock, self.share * share)
        other._priced, other._laid_out, other._failed = self._priced, self._laid_out, self._failed
        return other

    def expected(self, planned: Callable[[Scheduler], Plan]) -> float:
        """Cycles of a plan with all of the share.

        Raises:
            LramOverflowError: an operator does not fit it.
        """
        with self.clock.stage("schedule"):
            return self._plan(BUDGETS[0], self.options.effort, planned).expected

    def tiles(self, planned: Callable[[Scheduler], Plan]) -> int:
        """Tiles of a plan with all of the share."""
        with self.clock.stage("schedule"):
            return self._plan(BUDGETS[0], self.options.effort, planned).tiles

    def candidate(self, planned: Callable[[Scheduler], Plan], limit: float = float("inf")) -> Candidate | None:
        """Schedule with as much LRAM as leads to a layout; in the last resort without fused groups (effort 0).

        Args:
            planned: which of a scheduler's plans.
            limit: cycles that it may be expected to take.

        Returns:
            None when more cycles than the limit are expected, or when that is a candidate already.

        Raises:
            LramOverflowError: no share of the LRAM leads to a layout.
        """
        budgets = (*BUDGETS, *WASTEFUL_BUDGETS) if self.options.disabled_passes else BUDGETS
        attempts = [*((budget, self.options.effort) for budget in budgets), (budgets[-1], 0)]
        for attempt in attempts:
            with self.clock.stage("schedule"):
                plan = self._plan(*attempt, planned)
                settled = plan.settled
                if plan.expected > limit or settled in self._laid_out:
                    return None
                if settled in self._failed:
                    continue
                schedule = self._scheduler(*attempt).schedule(plan)
            try:
                candidate = self._with_program(schedule)
            except LramOverflowError as error:
                self._failed[settled] = error
            else:
                self._laid_out.add(settled)
                return candidate
        raise self._failed[settled]

    def _plan(self, budget: float, effort: int, planned: Callable[[Scheduler], Plan]) -> Plan:
        """A plan for a share of the LRAM, made once."""
        key = (budget, effort, planned)
        if key not in self._plans:
            self._plans[key] = planned(self._scheduler(budget, effort))
        return self._plans[key]

    def _scheduler(self, budget: float, effort: int) -> Scheduler:
        """A scheduler for a share of the LRAM."""
        options, key = self.options, (budget, effort)
        if key not in self._schedulers:
            decisions = options.decisions
            if decisions is not None:
                decisions = decisions.restricted_to({node.name for node in self.graph.nodes}, self.graph.tensors)
            techniques = Techniques.without(options.disabled_passes)
            self._schedulers[key] = Scheduler(
                self.graph, options.config, effort, decisions, budget * self.share, techniques, self._priced
            )
        return self._schedulers[key]

    def _with_program(self, schedule: Schedule) -> Candidate:
        """The candidate of a schedule, its tiles in LRAM."""
        observed = self.options.observe is not None
        levels = [("scheduled/tir", _scheduled_text(self.graph, schedule))] if observed else []

        def observe(name: str, program: CallProgram | RunProgram) -> None:
            levels.append((f"torq_hl/{name}", format_program(program)))

        with self.clock.stage("generate"):
            generated = generate(
                self.graph,
                schedule,
                self.options.config,
                disabled=self.options.disabled_passes,
                observe=observe if observed else None,
            )
        return Candidate(schedule, generated, tuple(levels))


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
