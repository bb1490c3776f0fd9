"""What each op must wait for: conflicting accesses of one buffer, and earlier tenants of its addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.codegen.hl import Access, Effect, HlProgram, Load, Op, SliceRun, Space
from torq_byoc.npu_model.isa import Engine, WaitFor


def engine_of(op: Op) -> WaitFor:
    """The engine that runs an op, in the form in which a task waits for it."""
    if isinstance(op, SliceRun):
        return WaitFor(Engine.SLICE, op.slice_index)
    return WaitFor(Engine.DMA_IN if isinstance(op, Load) else Engine.DMA_OUT)


@dataclass(frozen=True)
class AddressMap:
    """Where buffers lie: byte address and size in their own space; absent buffers are never accessed."""

    address: Mapping[int, int]
    size: Mapping[int, int]


def dependencies(program: HlProgram, addresses: AddressMap) -> list[dict[WaitFor, int]]:
    """For every op the latest op on each engine that must be complete before it starts.

    An engine finishes its jobs in order, so the latest one stands for all before it.  Ops of the same
    engine never need each other: the engine is itself a queue.
    """
    engines = [engine_of(op) for op in program.ops]
    tenants = _Tenants(program, addresses)
    history: dict[tuple[int, Effect], list[tuple[int, Access]]] = {}
    result: list[dict[WaitFor, int]] = []
    for position, op in enumerate(program.ops):
        needed: dict[WaitFor, int] = {}
        for access in op.accesses:
            for effect in Effect if access.effect is Effect.WRITE else (Effect.WRITE,):
                for earlier, other in history.get((access.buffer, effect), ()):
                    if other.conflicts_with(access):
                        _latest(needed, engines[earlier], earlier)
            if access.effect is Effect.WRITE:
                for engine, earlier in tenants.before(access.buffer).items():
                    _latest(needed, engine, earlier)
        for access in op.accesses:
            history.setdefault((access.buffer, access.effect), []).append((position, access))
            tenants.record(access.buffer, engines[position], position)
        needed.pop(engines[position], None)
        result.append(needed)
    return result


def _latest(needed: dict[WaitFor, int], engine: WaitFor, position: int) -> None:
    if needed.get(engine, -1) < position:
        needed[engine] = position


class _Tenants:
    """Finds, for a buffer, the last accesses of the buffers that held its addresses before it."""

    def __init__(self, program: HlProgram, addresses: AddressMap) -> None:
        count = len(program.buffers)
        self.low = np.full(count, -1, np.int64)
        self.high = np.full(count, -1, np.int64)
        self.lram = np.array([buffer.space is Space.LRAM for buffer in program.buffers], bool)
        for buffer, address in addresses.address.items():
            self.low[buffer], self.high[buffer] = address, address + addresses.size[buffer]
        self.started = np.zeros(count, bool)
        self.last: dict[WaitFor, np.ndarray] = {}
        self.known: dict[int, dict[WaitFor, int]] = {}

    def record(self, buffer: int, engine: WaitFor, position: int) -> None:
        if engine not in self.last:
            self.last[engine] = np.full(len(self.low), -1, np.int64)
        self.last[engine][buffer] = position
        self.started[buffer] = True

    def before(self, buffer: int) -> dict[WaitFor, int]:
        """Last access by each engine of every earlier buffer at these addresses.

        All earlier tenants are finished, in program order, when the buffer is first written.
        """
        if buffer not in self.known:
            same = self.started & (self.lram == self.lram[buffer])
            same &= (self.low < self.high[buffer]) & (self.high > self.low[buffer])
            same[buffer] = False
            found: dict[WaitFor, int] = {}
            for engine, last in self.last.items():
                latest = int(last[same].max(initial=-1))
                if latest >= 0:
                    found[engine] = latest
            self.known[buffer] = found
        return self.known[buffer]


def start_times(ops: Sequence[Op], needed: Sequence[Mapping[WaitFor, int]]) -> list[int]:
    """Earliest start of every op when each engine runs its ops in list order (cycles)."""
    free: dict[WaitFor, int] = {}
    finish = [0] * len(ops)
    starts = [0] * len(ops)
    for position, op in enumerate(ops):
        engine = engine_of(op)
        start = free.get(engine, 0)
        for earlier in needed[position].values():
            start = max(start, finish[earlier])
        starts[position] = start
        finish[position] = start + op.cycles
        free[engine] = finish[position]
    return starts
