"""Tuning records in a compilation: which partition uses one, what becomes of its promise, and what is said about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.programs import compile_graph
from torq_byoc.compilation.tuning_records import GraphEntry, RecordDatabase
from torq_byoc.compiled_model import Partition
from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.record import DecisionRecord


@dataclass(frozen=True)
class Recorded:
    """A partition compiled with what the tuning records know of it, and what a user is told about that."""

    partition: Partition
    note: str = ""


def compile_recorded(symbol: str, graph: OpGraph, options: Options, clock: StageClock) -> Recorded:
    """Compile a partition by its tuning record where there is one that applies, and never slower than by default.

    Args:
        symbol: its name.
        graph: its operators.
        options: the request.
        clock: of the compilation.

    Raises:
        ScheduleError: the record does not apply to the graph or the machine of its own key.
        LramOverflowError, VerificationError: as ``programs.compile_graph``.
    """
    entry, setting = None, options.setting
    if options.records is not None and not _decided_by_hand(options, graph):
        entry = options.records.entry(options.config, graph, setting)
    if options.records is None or entry is None:
        return Recorded(compile_graph(symbol, graph, options, clock), _absence(symbol, graph, options))
    partition = _by_record(symbol, graph, options, options.records, entry, clock)
    note = (
        f"{symbol}: decided by a tuning record of {entry.model}: {entry.cycles} cycles in {entry.setting}, "
        f"{entry.default_cycles} by default"
    )
    doubt = _doubt(entry, _cycles(partition, options), options)
    return _faster(partition, graph, options, clock, f"{note}; {doubt}") if doubt else Recorded(partition, note)


def _by_record(
    symbol: str, graph: OpGraph, options: Options, records: RecordDatabase, entry: GraphEntry, clock: StageClock
) -> Partition:
    decisions = records.decisions(entry, graph)
    try:
        return compile_graph(symbol, graph, replace(options, decisions=decisions), clock)
    except (ScheduleError, LramOverflowError) as error:
        raise records.refusal(error) from error


def _absence(symbol: str, graph: OpGraph, options: Options) -> str:
    """Why no record is used; empty when none was offered."""
    if options.records is None:
        return ""
    if _decided_by_hand(options, graph):
        return f"{symbol}: the schedule fixed by hand counts, tuning records are not looked at"
    others = options.records.entries(options.config, graph)
    if options.records.machine(options.config) is None:
        missing = f"know nothing of the machine {options.config.name}"
    elif others:
        known = "; ".join(str(entry.setting) for entry in others)
        missing = f"know this graph in other settings only ({known}), not in {options.setting}"
    else:
        missing = "know nothing of this graph"
    return f"{symbol}: the tuning records {missing}, the search decides"


def _doubt(entry: GraphEntry, cycles: int, options: Options) -> str:
    """Why the default might be faster than a record after all; empty when the promise stands."""
    if cycles != entry.cycles:
        return f"it gives {cycles} cycles now, since it was made by another version: tune again"
    if options.effort > entry.effort:
        return f"it was compared with a default of effort {entry.effort}, not {options.effort}"
    return ""


def _faster(partition: Partition, graph: OpGraph, options: Options, clock: StageClock, note: str) -> Recorded:
    """A record's program, or the default one where that takes fewer cycles."""
    symbol, default = partition.facts.symbol, replace(options, records=None)
    try:
        rival = compile_graph(symbol, graph, replace(default, observe=None), clock)
    except LramOverflowError:
        return Recorded(partition, f"{note}; there is no default schedule that fits, the record is used")
    cycles = _cycles(rival, options)
    if cycles >= _cycles(partition, options):
        return Recorded(partition, f"{note}; the default takes {cycles}, the record is used")
    if options.observe:  # its IR is what a reader should see last
        rival = compile_graph(symbol, graph, default, clock)
    return Recorded(rival, f"{note}; the default takes {cycles} and is used instead")


def _cycles(partition: Partition, options: Options) -> int:
    return simulate_timeline(partition.program, options.profile).total_cycles


def _decided_by_hand(options: Options, graph: OpGraph) -> bool:
    if options.decisions is None:
        return False
    own = options.decisions.restricted_to({node.name for node in graph.nodes}, graph.tensors)
    return own != DecisionRecord()
