"""The fastest of several candidates: no heuristic of the search may lose to the plan that does without it.

A rival is made of a chosen candidate's request by taking something away (fused groups, half of the slices, half of the
LRAM) or by choosing groups for the chain as a whole.  It is laid out and simulated where it may be faster, and the
faster one of the two goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from torq_byoc.compilation.candidates import Candidate, CandidateSearch
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.timing import dma_cycles
from torq_byoc.schedules.plan import Scheduler
from torq_byoc.schedules.record import DecisionRecord
from torq_byoc.schedules.unit_plan import Plan

Result = TypeVar("Result")

PLAUSIBLE = 1.1
"""Estimate of a rival schedule over that of the chosen one, up to which it may turn out to be faster."""
PROMISING = 0.99
"""The same for the fastest chain of a program that is not small."""
TINY, SMALL, LARGE = 300, 1_200, 2_000
"""Jobs of the preferred program up to which making another one takes next to nothing, or little of the time of the
search for it, and from which on no other chain of groups is looked for."""
MANY_TURNS, ONE_TURN = 12, 1
"""In which the groups of a chain are chosen, for small programs and for others."""
FINE_LADDER = tuple(
    kib << 10
    for octave in (2048, 1024, 512, 256, 128, 64, 32)
    for kib in (octave * 7 // 8, octave * 3 // 4, octave * 5 // 8, octave // 2)
)
"""Bytes of LRAM for which other plans of tiny programs are made, where the machine has more: sizes, not shares, so that
a machine with more of it tries what one with less would do."""
LADDER = FINE_LADDER[1::2]
"""For other programs."""
RUNGS, RUNGS_OF_SMALL = 6, 4
"""As many of those, from the largest on."""
WORTH_MORE_BYTES = 1.001
"""Rank of a candidate over that of a plan for less LRAM, which moves more bytes, from which on that is worth it."""
MANY_TILES = 500
"""Tiles of a plan from which on its program is large."""
LESS_FULL = 0.95
"""Share of the LRAM for which a plan of a large program is made as well: groups and residency are chosen in turns,
which may lead to where more is gained from there."""
LEAST_GAIN = 0.998
"""Cycles expected of another plan over those of the usual one, up to which it is preferred."""
MISSES = 2
"""Sizes in a row that promise too little, after which no smaller one is tried."""
HELD_UP = 1.012
"""Simulated cycles over expected ones, from which on a program is taken to wait for room in the LRAM."""
WORTHWHILE = 1.005
"""Cycles of a program that waits for room over those expected of a plan that is worth a program."""
CLEARLY_HELD_UP = 1.03
"""Simulated cycles over expected ones, from which on a program waits beyond doubt: estimates know all else within a
percent or two."""
ROOMIER = ((1.0, Scheduler.best_without_residency), (0.9, Scheduler.best), (0.8, Scheduler.best))
"""Plans that hold less of the LRAM: the share of it that they may plan with, and which plan."""
USUAL_EFFORT = 1
"""Effort whose candidates are rivals of those of more effort."""
LESS_MEMORY_EFFORT = 2
"""Effort from which on the plans of machines with less LRAM are tried for all programs."""
WORTH_HALVING = 0.02
"""Cycles in which programs are loaded over those of everything, from which on half the slices may be faster in a
program that is not small."""
UNEVEN = 1.1
"""Slices' work over what fewer of them have time for, up to which those may do it: more slices have more of it, where
they read the same rows or their parts are padded."""


def fastest_candidate(graph: OpGraph, options: Options, clock: StageClock) -> Candidate:
    """The candidate that the search prefers, or a rival that simulates faster.

    Rivals without fused groups and, unless the program is large, with groups chosen for the chain as a whole are tried
    unless a record fixes the groups.  Those with half the slices (every slice loads programs of its own, so more slices
    may take longer) and those for less LRAM are tried unless a record fixes a node: the latter from effort 2 on, and
    for small programs.  Programs that wait for room in the LRAM are planned with some less of it as well, and from
    other groups.  From effort 2 on, what the usual effort finds is a rival too: a more thorough search may still be
    misled.

    Args:
        graph: operators in topological order.
        options: the request.
        clock: gets the seconds of the stages.

    Raises:
        LramOverflowError: an operator cannot be tiled into the LRAM.
        ScheduleError: a record fixes what is not possible.
    """
    chosen = _fastest_at_effort(graph, options, clock)
    if options.effort <= USUAL_EFFORT or not _is_free(graph, options):
        return chosen
    usual = replace(options, effort=USUAL_EFFORT)
    return _faster(chosen, _attempted(_fastest_at_effort, graph, usual, clock))


def _fastest_at_effort(graph: OpGraph, options: Options, clock: StageClock) -> Candidate:
    """The fastest of the candidates that a search of the requested effort leads to."""
    search = CandidateSearch(graph, options, clock)
    preferred = _preferred(search)
    size = len(preferred.generated.program.jobs)
    chosen = _with_any_groups(search, preferred, size)
    if not _is_free(graph, options):
        return chosen
    chosen = _planned_for_less(search, chosen, size)
    if size <= SMALL or chosen is preferred:
        chosen = _with_room(search, chosen, size)
    return _faster(chosen, _on_half_the_slices(graph, options, chosen, size, clock))


def _preferred(search: CandidateSearch) -> Candidate:
    """The candidate of the usual plan; for large programs, next to which plans are cheap, that of the plan for a little
    less LRAM where more is expected from it."""
    rival, free = None, _is_free(search.graph, search.options)
    if search.options.effort > 0 and free and search.tiles(Scheduler.best) >= MANY_TILES:
        narrowed = search.narrowed(LESS_FULL)
        expected = _attempted(narrowed.expected, Scheduler.best)
        if expected is not None and expected < LEAST_GAIN * search.expected(Scheduler.best):
            rival = _attempted(narrowed.candidate, Scheduler.best)
    preferred = rival or search.candidate(Scheduler.best)
    assert preferred is not None, "there is no limit to what it may cost, and it is the first"
    return preferred


def _faster(chosen: Candidate, rival: Candidate | None) -> Candidate:
    return chosen if rival is None or rival.cycles >= chosen.cycles else rival


def _attempted(make: Callable[..., Result | None], *arguments: Any) -> Result | None:
    """A rival, or what is asked about one; None where it cannot be laid out."""
    try:
        return make(*arguments)
    except LramOverflowError:
        return None


def _with_any_groups(search: CandidateSearch, preferred: Candidate, size: int) -> Candidate:
    """The fastest of what the search prefers, no groups at all, and the groups of the fastest chain."""
    decisions = search.options.decisions
    if decisions and decisions.groups is not None:
        return preferred
    limit = PLAUSIBLE * preferred.schedule.expected
    chosen = _faster(preferred, _attempted(search.candidate, Scheduler.without_groups, limit))
    return _faster(chosen, _attempted(_of_fastest_chain, search, chosen, size))


def _of_fastest_chain(search: CandidateSearch, chosen: Candidate, size: int) -> Candidate | None:
    """With the groups of the fastest chain; None where that promises too little for what it takes to try it."""
    if size >= LARGE:
        return None
    limit, turns = (PLAUSIBLE, MANY_TURNS) if size <= SMALL else (PROMISING, ONE_TURN)
    return search.candidate(lambda scheduler: scheduler.best_chain(turns), limit * chosen.schedule.expected)


def _planned_for_less(search: CandidateSearch, chosen: Candidate, size: int) -> Candidate:
    """The fastest of a candidate and the schedules for machines with less LRAM, where they are plausible.

    Smaller tiles move more bytes: a machine whose transfers share one channel must not lose more than is saved here.
    """
    if size > SMALL and search.options.effort < LESS_MEMORY_EFFORT:
        return chosen
    config = search.options.config
    sizes, fine = (_sizes_below(config, ladder) for ladder in (LADDER, FINE_LADDER))
    if size > SMALL:
        return _down(search, chosen, Scheduler.best, sizes[:RUNGS])
    chosen = _down(search, chosen, Scheduler.best, sizes[:1])
    return _down(search, chosen, _longest_chain, fine if size <= TINY else sizes[:RUNGS_OF_SMALL])


def _down(
    search: CandidateSearch, chosen: Candidate, plan: Callable[[Scheduler], Plan], sizes: Sequence[int]
) -> Candidate:
    """The fastest of a candidate and one kind of plan for less and less LRAM, until that is too little.

    A single size may be expected to do worse than the next one: a cut that suits the other does not fit it.
    """
    config, implausible = search.options.config, 0
    for nbytes in sizes:
        narrowed = search.narrowed((nbytes - config.lram_reserve) / config.lram_usable)
        limit = PLAUSIBLE * chosen.schedule.expected
        expected = _attempted(narrowed.expected, plan)
        implausible = 0 if expected is not None and expected <= limit else implausible + 1
        if expected is None or implausible == MISSES:
            break
        rival = _attempted(narrowed.candidate, plan, limit)
        if rival is not None and WORTH_MORE_BYTES * rival.rank < chosen.rank:
            chosen = _faster(chosen, rival)
    return chosen


def _sizes_below(config: NpuConfig, ladder: Sequence[int]) -> list[int]:
    """Those sizes that a machine could have less LRAM with."""
    return [size for size in ladder if config.lram_reserve < size < config.lram_bytes]


def _with_room(search: CandidateSearch, chosen: Candidate, size: int) -> Candidate:
    """The fastest of a candidate that waits for room in the LRAM and of plans that hold less of it; the first two
    only where it takes long to make a program."""
    if search.options.effort == 0:
        return chosen
    tries = 2 if size >= LARGE else len(ROOMIER)
    for share, plan in ROOMIER[:tries]:
        if chosen.cycles < HELD_UP * chosen.schedule.expected:
            break
        chosen = _faster(chosen, _attempted(search.narrowed(share).candidate, plan, _worth_a_program(chosen, size)))
    return chosen


def _worth_a_program(chosen: Candidate, size: int) -> float:
    """Cycles that a plan with more room may be expected to take: fewer than what the candidate takes; of a large
    program, unless that waits beyond doubt, fewer than what was expected of it."""
    clearly = chosen.cycles >= CLEARLY_HELD_UP * chosen.schedule.expected
    return (chosen.cycles if clearly or size < LARGE else chosen.schedule.expected) / WORTHWHILE


def _longest_chain(scheduler: Scheduler) -> Plan:
    return scheduler.best_chain(MANY_TURNS)


def _on_half_the_slices(
    graph: OpGraph, options: Options, chosen: Candidate, size: int, clock: StageClock
) -> Candidate | None:
    """What is chosen for half the slices; None when that cannot be faster."""
    slices = _slices(graph, options) // 2
    if not (slices and _may_do_with(chosen, slices)):
        return None
    if size > SMALL and not _loads_many_programs(chosen, options.config):
        return None
    decisions = options.decisions or DecisionRecord()
    half = replace(decisions, slices={node.name: slices for node in _scheduled(graph)})
    return _attempted(_fastest_at_effort, graph, replace(options, decisions=half), clock)


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


def _may_do_with(candidate: Candidate, slices: int) -> bool:
    """Whether so many slices could do the same work in the time of a program, were there nothing else to wait for."""
    busy = candidate.generated.timeline.busy
    work = sum(cycles for track, cycles in busy.items() if track.startswith("slice"))
    return work <= UNEVEN * slices * candidate.cycles


def _loads_many_programs(candidate: Candidate, config: NpuConfig) -> bool:
    """Whether it could matter that fewer slices load fewer programs."""
    nbytes = sum(entry.get("in_program", 0) for entry in candidate.generated.layer_bytes.values())
    return dma_cycles(nbytes, config) >= WORTH_HALVING * candidate.cycles
