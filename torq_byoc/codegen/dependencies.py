"""What each op must wait for: conflicting accesses of one buffer, and earlier tenants of its addresses."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
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
    tenants = _Tenants(program, addresses, engines)
    readers: _History = {}
    writers: _History = {}
    result: list[dict[WaitFor, int]] = []
    for position, (op, engine) in enumerate(zip(program.ops, engines, strict=True)):
        number = tenants.numbers[engine]
        needed: dict[int, int] = {}
        accesses = op.accesses
        for access in accesses:
            buffer = access.buffer
            if buffer in writers:
                _add_conflicts(needed, access, writers[buffer], number)
            if access.effect is WRITE:
                if buffer in readers:
                    _add_conflicts(needed, access, readers[buffer], number)
                _add_latest(needed, tenants.before(buffer))
        for access in accesses:
            buffer, history = access.buffer, readers if access.effect is READ else writers
            own = history.get(buffer)
            if own is None:
                own = history[buffer] = {}
            if number in own:
                own[number].append((position, access))
            else:
                own[number] = [(position, access)]
            tenants.record(buffer, number, position)
        result.append(tenants.named(needed, number))
    return Dependencies(engines, result)


_History = dict[int, dict[int, list[tuple[int, Access]]]]
"""Accesses of every buffer, by the number of the engine, each with the position of its op."""


def with_reused_xram(found: Dependencies, program: RunProgram, addresses: AddressMap) -> Dependencies:
    """Dependencies found without addresses in XRAM, with those of stores on what was in the arena before."""
    arena = {b: at for b, at in addresses.address.items() if _in_arena(program.buffers[b])}
    tenants = _Tenants(program, AddressMap(arena, addresses.size), found.engines)
    result = list(found.needed)
    for position, (op, engine) in enumerate(zip(program.ops, found.engines, strict=True)):
        outside = op.source if type(op) is Load else op.target if type(op) is Store else None
        if outside is None or outside.buffer not in arena:
            continue
        number = tenants.numbers[engine]
        before = tenants.before(outside.buffer) if outside.effect is WRITE else None
        if before:
            needed = {tenants.numbers[other]: earlier for other, earlier in result[position].items()}
            _add_latest(needed, before)
            result[position] = tenants.named(needed, number)
        tenants.record(outside.buffer, number, position)
    return Dependencies(found.engines, result)


def _in_arena(buffer: Buffer) -> bool:
    return buffer.space is Space.XRAM and buffer.kind is BufferKind.ACTIVATION


def _add_conflicts(
    needed: dict[int, int], access: Access, history: Mapping[int, Sequence[tuple[int, Access]]], engine: int
) -> None:
    """Note the latest of the accesses by each other engine that must come before this one."""
    for other, past in history.items():
        if other == engine:
            continue
        known = needed.get(other, -1)
        for earlier, before in reversed(past):
            if earlier <= known:
                break
            if before.conflicts_with(access):
                needed[other] = earlier
                break


def _add_latest(needed: dict[int, int], others: Mapping[int, int]) -> None:
    for engine, position in others.items():
        if needed.get(engine, -1) < position:
            needed[engine] = position


class _Tenants:
    """Finds, for a buffer, the last accesses of the buffers that held its addresses before it.

    The memories are a row of cells, as large as the placement of their buffers allows; a cell remembers the last access
    by each engine, whichever buffer was there: one row of positions an engine.  Engines are ``numbers`` in here, in the
    order in which they come first.
    """

    def __init__(self, program: RunProgram, addresses: AddressMap, engines: Iterable[WaitFor]) -> None:
        self.engines = list(dict.fromkeys(engines))
        self.numbers = {engine: number for number, engine in enumerate(self.engines)}
        self.cells: dict[int, slice] = {}
        count = 0
        for space in Space:
            members = [b for b in addresses.address if program.buffers[b].space is space]
            count = self._divide(members, addresses, count)
        self.last = np.full((len(self.engines), count), -1, np.int64)
        self.known: dict[int, dict[int, int]] = {}

    def _divide(self, members: Sequence[int], addresses: AddressMap, count: int) -> int:
        """Number the stretches between the starts of buffers, from ``count`` on, and return how many there are then:
        two buffers share a byte when they share one of these."""
        low = np.array([addresses.address[buffer] for buffer in members], np.int64)
        high = low + np.array([addresses.size[buffer] for buffer in members], np.int64)
        starts = np.unique(low)
        first, end = (count + np.searchsorted(starts, edge) for edge in (low, high))
        self.cells |= {b: slice(*bounds) for b, *bounds in zip(members, first.tolist(), end.tolist(), strict=True)}
        return count + len(starts)

    def record(self, buffer: int, engine: int, position: int) -> None:
        """Note an access to a buffer."""
        cells = self.cells.get(buffer)
        if cells is not None:
            self.last[engine, cells] = position

    def before(self, buffer: int) -> Mapping[int, int]:
        """Last access by each engine of every earlier buffer at these addresses.

        All earlier tenants are finished, in program order, when the buffer is first written.
        """
        known = self.known.get(buffer)
        if known is None:
            known = self.known[buffer] = self._before(buffer)
        return known

    def _before(self, buffer: int) -> dict[int, int]:
        if buffer not in self.cells:
            return {}
        latest = np.maximum.reduce(self.last[:, self.cells[buffer]], axis=1, initial=-1).tolist()
        return {engine: position for engine, position in enumerate(latest) if position >= 0}

    def named(self, needed: Mapping[int, int], engine: int) -> dict[WaitFor, int]:
        """What an op of an engine needs of the others, by their names."""
        return {self.engines[other]: position for other, position in needed.items() if other != engine}


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
