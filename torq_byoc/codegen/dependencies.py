"""What each op must wait for: conflicting accesses of one buffer, and earlier tenants of its addresses."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.codegen.hl import READ, WRITE, Access, Buffer, BufferKind, Load, Op, RunProgram, SliceRun, Space, Store
from torq_byoc.npu_model.isa import Engine, WaitFor


def engine_of(op: Op) -> WaitFor:
    """The engine that runs an op, in the form in which a task waits for it."""
    if type(op) is SliceRun:
        return _slice(op.slice_index)
    return _DMA_IN if type(op) is Load else _DMA_OUT


_DMA_IN, _DMA_OUT = WaitFor(Engine.DMA_IN), WaitFor(Engine.DMA_OUT)


@functools.cache
def _slice(index: int) -> WaitFor:
    return WaitFor(Engine.SLICE, index)


@dataclass(frozen=True)
class AddressMap:
    """Where buffers lie: byte address and size in their own space; absent buffers are never accessed."""

    address: Mapping[int, int]
    size: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Dependencies:
    """What the ops of a program wait for.

    Attributes:
        engines: the engine of every op (``engine_of``).
        needed: for every op the latest op on each other engine that must be complete before it starts.  An engine
            finishes its jobs in order, so the latest one stands for all before it.  Ops of the same engine never need
            each other: the engine is itself a queue.
    """

    engines: Sequence[WaitFor]
    needed: Sequence[Mapping[WaitFor, int]]


def dependencies(program: RunProgram, addresses: AddressMap) -> Dependencies:
    """What every op must wait for.

    Args:
        program: torq_hl in its final order.
        addresses: of buffers that may have had other tenants; those left out have a place of their own.
    """
    engines = [engine_of(op) for op in program.ops]
    tenants = _Tenants(program, addresses, len(set(engines)))
    readers: _History = {}
    writers: _History = {}
    result: list[dict[WaitFor, int]] = []
    for position, (op, engine) in enumerate(zip(program.ops, engines, strict=True)):
        needed: dict[WaitFor, int] = {}
        accesses = op.accesses
        for access in accesses:
            buffer = access.buffer
            if buffer in writers:
                _add_conflicts(needed, access, writers[buffer], engine)
            if access.effect is WRITE:
                if buffer in readers:
                    _add_conflicts(needed, access, readers[buffer], engine)
                for other, earlier in tenants.before(buffer).items():
                    _latest(needed, other, earlier)
        for access in accesses:
            buffer, history = access.buffer, readers if access.effect is READ else writers
            own = history.get(buffer)
            if own is None:
                own = history[buffer] = {}
            if engine in own:
                own[engine].append((position, access))
            else:
                own[engine] = [(position, access)]
            tenants.record(buffer, engine, position)
        needed.pop(engine, None)
        result.append(needed)
    return Dependencies(engines, result)


_History = dict[int, dict[WaitFor, list[tuple[int, Access]]]]
"""Accesses of every buffer, by engine, each with the position of its op."""


def with_reused_xram(found: Dependencies, program: RunProgram, addresses: AddressMap) -> Dependencies:
    """Dependencies found without addresses in XRAM, with those of stores on what was in the arena before."""
    arena = {b: at for b, at in addresses.address.items() if _in_arena(program.buffers[b])}
    tenants = _Tenants(program, AddressMap(arena, addresses.size), len(set(found.engines)))
    result = list(found.needed)
    for position, (op, engine) in enumerate(zip(program.ops, found.engines, strict=True)):
        outside = op.source if type(op) is Load else op.target if type(op) is Store else None
        if outside is None or outside.buffer not in arena:
            continue
        if outside.effect is WRITE:
            needed = dict(result[position])
            for other, earlier in tenants.before(outside.buffer).items():
                _latest(needed, other, earlier)
            needed.pop(engine, None)
            result[position] = needed
        tenants.record(outside.buffer, engine, position)
    return Dependencies(found.engines, result)


def _in_arena(buffer: Buffer) -> bool:
    return buffer.space is Space.XRAM and buffer.kind is BufferKind.ACTIVATION


def _add_conflicts(
    needed: dict[WaitFor, int], access: Access, history: Mapping[WaitFor, Sequence[tuple[int, Access]]], engine: WaitFor
) -> None:
    """Note the latest of the accesses by each other engine that must come before this one."""
    for other, past in history.items():
        if other is engine:
            continue
        known = needed.get(other, -1)
        for earlier, before in reversed(past):
            if earlier <= known:
                break
            if before.conflicts_with(access):
                needed[other] = earlier
                break


def _latest(needed: dict[WaitFor, int], engine: WaitFor, position: int) -> None:
    if needed.get(engine, -1) < position:
        needed[engine] = position


class _Tenants:
    """Finds, for a buffer, the last accesses of the buffers that held its addresses before it.

    Each memory is a row of cells, as large as the placement of its buffers allows; a cell remembers the last access
    by each engine, whichever buffer was there: one row of numbers an engine, in the order in which engines come first.
    """

    def __init__(self, program: RunProgram, addresses: AddressMap, engines: int) -> None:
        self.cells: dict[int, tuple[bool, slice]] = {}
        self.count: dict[bool, int] = {}
        for lram in (False, True):
            members = [b for b in addresses.address if (program.buffers[b].space is Space.LRAM) == lram]
            self._divide(members, lram, addresses)
        self.last = {lram: np.full((engines, count), -1, np.int64) for lram, count in self.count.items()}
        self.rows: dict[bool, dict[WaitFor, int]] = {False: {}, True: {}}
        self.known: dict[int, dict[WaitFor, int]] = {}

    def _divide(self, members: Sequence[int], lram: bool, addresses: AddressMap) -> None:
        """Number the stretches between the starts of buffers: two buffers share a byte when they share one of these."""
        starts = np.unique(np.array([addresses.address[buffer] for buffer in members], np.int64))
        low = np.array([addresses.address[buffer] for buffer in members], np.int64)
        high = low + np.array([addresses.size[buffer] for buffer in members], np.int64)
        first, end = np.searchsorted(starts, low).tolist(), np.searchsorted(starts, high).tolist()
        self.cells |= {b: (lram, slice(*bounds)) for b, *bounds in zip(members, first, end, strict=True)}
        self.count[lram] = len(starts)

    def record(self, buffer: int, engine: WaitFor, position: int) -> None:
        found = self.cells.get(buffer)
        if found is None:
            return
        lram, cells = found
        rows = self.rows[lram]
        row = rows.get(engine)
        if row is None:
            row = rows[engine] = len(rows)
        self.last[lram][row, cells] = position

    def before(self, buffer: int) -> Mapping[WaitFor, int]:
        """Last access by each engine of every earlier buffer at these addresses.

        All earlier tenants are finished, in program order, when the buffer is first written.
        """
        known = self.known.get(buffer)
        if known is None:
            known = self.known[buffer] = self._before(buffer)
        return known

    def _before(self, buffer: int) -> dict[WaitFor, int]:
        if buffer not in self.cells:
            return {}
        lram, cells = self.cells[buffer]
        latest = np.maximum.reduce(self.last[lram][:, cells], axis=1, initial=-1).tolist()
        return {engine: latest[row] for engine, row in self.rows[lram].items() if latest[row] >= 0}


def start_times(ops: Sequence[Op], found: Dependencies) -> list[int]:
    """Earliest start of every op when each engine runs its ops in list order (cycles)."""
    free = dict.fromkeys(found.engines, 0)
    finish: list[int] = []
    starts: list[int] = []
    for op, engine, needed in zip(ops, found.engines, found.needed, strict=True):
        start = free[engine]
        for earlier in needed.values():
            if finish[earlier] > start:
                start = finish[earlier]
        starts.append(start)
        free[engine] = end = start + op.cycles
        finish.append(end)
    return starts
