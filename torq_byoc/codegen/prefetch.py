"""Prefetch and double buffering: how early each load may be issued, given the LRAM that is free.

Time is counted in steps (one tile each).  A load issued in slot e runs beside the slices of step e; its
buffer is occupied from e to the last step that reads it.  Loads keep their order (the DMA engine is one
queue), and each moves as early as capacity allows in every slot that it then crosses.  What a load reads
from XRAM must have been stored in an earlier step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.codegen.hl import Access, HlProgram, Load, Op, SliceRun, Space, Store

MAX_LOOKAHEAD = 64


@dataclass(frozen=True)
class Lifetime:
    """Slots in which a buffer is occupied, both ends included."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class OrderedProgram:
    """Ops in their final linear order with the lifetime of every LRAM buffer in use."""

    program: HlProgram
    lifetimes: Mapping[int, Lifetime]


def order(program: HlProgram, capacity: int, align: int, *, hoist: bool = True, drain: int = 1) -> OrderedProgram:
    """Choose issue slots and emit the linear order.

    Args:
        program: torq_hl after the passes.
        capacity: LRAM bytes that hoisted loads may fill.
        align: granularity of an LRAM buffer in bytes.
        hoist: False issues every load in the step that needs it.
        drain: slots that a stored tile stays occupied after the step that made it.

    Returns:
        Ops ordered slot by slot: loads issued in the slot, slice programs, stores.
    """
    steps = 1 + max((op.step for op in program.ops), default=0)
    fetches = _fetches(program)
    lifetimes = _fixed_lifetimes(program, fetches, steps, drain)
    live = np.zeros(steps + 1, np.int64)
    sizes = {b.index: -(-b.nbytes // align) * align for b in program.buffers if b.space is Space.LRAM}
    for buffer, life in lifetimes.items():
        live[life.start : life.end + 1] += sizes[buffer]
    slots: dict[int, int] = {}
    earliest_issue = 0
    stores = _stores_by_buffer(program)
    for fetch in fetches:
        size = sizes[fetch.buffer]
        slot = fetch.first_use
        if hoist:
            floor = max(earliest_issue, fetch.first_use - MAX_LOOKAHEAD, _ready_slot(fetch, stores))
            while slot > floor and live[slot - 1] + size <= capacity:
                slot -= 1
        slots[fetch.buffer] = slot
        earliest_issue = max(earliest_issue, slot)
        lifetimes[fetch.buffer] = Lifetime(slot, fetch.last_use)
        live[slot : fetch.last_use + 1] += size
    return OrderedProgram(program.with_ops(_linear(program, slots)), lifetimes)


@dataclass(frozen=True)
class _Fetch:
    """All loads that fill one LRAM buffer."""

    buffer: int
    first_use: int
    last_use: int
    sources: tuple[Access, ...]


def _fetches(program: HlProgram) -> list[_Fetch]:
    sources: dict[int, list[Access]] = {}
    for op in program.ops:
        if isinstance(op, Load):
            sources.setdefault(op.target.buffer, []).append(op.source)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            for access in op.accesses:
                first.setdefault(access.buffer, op.step)
                last[access.buffer] = op.step
    return [_Fetch(b, first[b], last[b], tuple(dict.fromkeys(s))) for b, s in sources.items() if b in first]


def _fixed_lifetimes(program: HlProgram, fetches: Sequence[_Fetch], steps: int, drain: int) -> dict[int, Lifetime]:
    """Lifetimes of LRAM buffers that no load fills: tile results and resident tensors."""
    loaded = {fetch.buffer for fetch in fetches}
    lifetimes: dict[int, Lifetime] = {}
    for op in program.ops:
        for access in op.accesses:
            buffer = access.buffer
            if buffer in loaded or program.buffers[buffer].space is not Space.LRAM or isinstance(op, Load):
                continue
            end = min(op.step + (drain if isinstance(op, Store) else 0), steps - 1)
            known = lifetimes.get(buffer)
            start = known.start if known else op.step
            lifetimes[buffer] = Lifetime(start, max(end, known.end if known else end))
    return lifetimes


def _stores_by_buffer(program: HlProgram) -> dict[int, list[Store]]:
    stores: dict[int, list[Store]] = {}
    for op in program.ops:
        if isinstance(op, Store):
            stores.setdefault(op.target.buffer, []).append(op)
    return stores


def _ready_slot(fetch: _Fetch, stores: Mapping[int, Sequence[Store]]) -> int:
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


def _linear(program: HlProgram, slots: Mapping[int, int]) -> list[Op]:
    keyed: list[tuple[tuple[int, int, int], Op]] = []
    for position, op in enumerate(program.ops):
        if isinstance(op, Load):
            if op.target.buffer in slots:
                keyed.append(((slots[op.target.buffer], 0, position), op))
        else:
            keyed.append(((op.step, 1 if isinstance(op, SliceRun) else 2, position), op))
    keyed.sort(key=lambda item: item[0])
    return [op for _, op in keyed]
