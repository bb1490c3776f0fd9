"""When LRAM buffers are needed: by the steps that make and read them, by the loads that fill them.

Time is counted in slots, one a step (a tile, or a part of one whose program is long).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from torq_byoc.codegen.hl import Access, Load, RunProgram, SliceRun, Store


class Lifetime(msgspec.Struct, frozen=True, gc=False):
    """Slots in which a buffer is occupied, both ends included."""

    start: int
    end: int


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """All loads that fill one LRAM buffer: ``tile`` of a node whose first step is ``node_start``.

    Uses are steps, ``cycles`` those of the transfers together.
    """

    buffer: int
    first_use: int
    last_use: int
    sources: tuple[Access, ...]
    node_start: int
    tile: int
    cycles: int


class Uses(msgspec.Struct, frozen=True, gc=False):
    """Steps in which slice programs use buffers: the first and the last one, in the order of the first; and the first
    step of every node."""

    first: dict[int, int]
    last: dict[int, int]
    starts: dict[str, int]

    @classmethod
    def of(cls, program: RunProgram) -> Uses:
        """Those of a program."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        starts: dict[str, int] = {}
        for op in program.ops:
            if type(op) is SliceRun:
                step = op.step
                if op.node not in starts:
                    starts[op.node] = step
                for access in op.accesses:
                    buffer = access.buffer
                    if buffer not in first:
                        first[buffer] = step
                    last[buffer] = step
        return cls(first, last, starts)


def all_fetches(program: RunProgram, uses: Uses) -> list[Fetch]:
    """Fetched buffers in the order of their first load, given what uses them."""
    loads: dict[int, list[Load]] = {}
    for op in program.ops:
        if type(op) is Load:
            buffer = op.target.buffer
            if buffer in loads:
                loads[buffer].append(op)
            else:
                loads[buffer] = [op]
    fetches = []
    for buffer, own in loads.items():
        first = uses.first.get(buffer)
        if first is not None:
            load, cycles = own[0], sum([one.cycles for one in own])
            sources = tuple(dict.fromkeys([one.source for one in own])) if len(own) > 1 else (load.source,)
            start = uses.starts.get(load.node, first)
            fetches.append(Fetch(buffer, first, uses.last[buffer], sources, start, load.tile, cycles))
    return fetches


def fixed_lifetimes(program: RunProgram, uses: Uses, fetches: Sequence[Fetch]) -> dict[int, Lifetime]:
    """Lifetimes of LRAM buffers that no load fills: tile results and resident tensors."""
    loaded = {fetch.buffer for fetch in fetches}
    first, last = dict(uses.first), dict(uses.last)
    for op in program.ops:
        if type(op) is Store:
            buffer, step = op.source.buffer, op.step
            first.setdefault(buffer, step)
            last[buffer] = max(last.get(buffer, step), step)
    return {buffer: Lifetime(start, last[buffer]) for buffer, start in first.items() if buffer not in loaded}


def lingering_until(program: RunProgram, fixed: Mapping[int, Lifetime]) -> dict[int, int]:
    """For every stored result the slot until which its place should stay its own: nothing waits for the transfer then.

    While its node has a next tile (a fused group runs its other nodes in between), until the slot of that tile, which
    has another place; behind the last one, until the store is done.
    """
    steps = steps_by_node(program)
    maker = {op.invocation.output.buffer: op.node for op in program.ops if type(op) is SliceRun}
    lingering = {}
    for store, done in _stores_with_end(program):
        buffer = store.source.buffer
        if buffer in fixed:
            own, end = steps[maker[buffer]], fixed[buffer].end
            position = bisect.bisect_right(own, end)
            until = own[position] if position < len(own) else done
            if until > end:
                lingering[buffer] = until
    return lingering


def steps_by_node(program: RunProgram) -> dict[str, list[int]]:
    """The steps in which slices run a node, by its name."""
    steps: dict[str, list[int]] = {}
    for op in program.ops:
        if type(op) is SliceRun:
            own = steps.setdefault(op.node, [])
            if not own or own[-1] != op.step:
                own.append(op.step)
    return steps


def _stores_with_end(program: RunProgram) -> Iterator[tuple[Store, int]]:
    """Stores in program order, with the slot in which each is done, one after the other, if the slices never wait."""
    work = [0] * (1 + max((op.step for op in program.ops), default=0))
    for op in program.ops:
        if type(op) is SliceRun:
            work[op.step] = max(work[op.step], op.cycles)
    ends = list(itertools.accumulate(work))
    done = 0
    for op in program.ops:
        if type(op) is Store:
            done = max(done, ends[op.step]) + op.cycles
            yield op, min(bisect.bisect_left(ends, done), len(ends) - 1)


def stores_by_buffer(program: RunProgram) -> dict[int, list[Store]]:
    """Stores by the XRAM buffer that they fill, in program order."""
    stores: dict[int, list[Store]] = {}
    for op in program.ops:
        if type(op) is Store:
            stores.setdefault(op.target.buffer, []).append(op)
    return stores


def ready_slot(fetch: Fetch, stores: Mapping[int, Sequence[Store]]) -> int:
    """First slot after every store that wrote what the fetch reads."""
    ready = 0
    for source in fetch.sources:
        for store in reversed(stores.get(source.buffer, ())):
            if store.step + 1 <= ready:
                break
            if store.target.conflicts_with(source):
                ready = store.step + 1
                break
    return ready
