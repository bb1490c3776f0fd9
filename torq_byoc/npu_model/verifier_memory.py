"""Which bytes of LRAM, arena and outputs hold something, and of what kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.isa import DMA_OUT, DmaDescriptor, StartDma
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.touched import Placed
from torq_byoc.npu_model.xram import Region, XramMap

UNDEFINED, DATA, CODE, NSS = 0, 1, 2, 3
_OTHERS = {kind: [other for other in range(4) if other != kind] for kind in range(4)}
_KIND = {"program": CODE, "nss": NSS}
_FEW = 64
"""Intervals up to which they are looked through one by one."""


class Memory:
    """Kinds of bytes; a job's effects are applied when it starts, its order being proved elsewhere."""

    def __init__(self, program: Program, xram: XramMap) -> None:
        self._kinds = bytearray(program.config.lram_bytes)
        self._lram = np.frombuffer(self._kinds, np.uint8)
        self._alike = [memoryview(bytes([kind]) * len(self._kinds)) for kind in range(4)]
        self._origin = np.zeros(2, np.int64)
        self._slot_bytes = program.config.nss_block_bytes
        self._defined = {
            region.start: np.zeros(region.end - region.start, np.uint8) for region in xram.regions if region.writable
        }
        self._outputs = [region for region in xram.regions if region.kind == "output"]
        if program.blocks:
            first = program.blocks[0]
            self._lram[: first.size] = NSS
            self._origin[0] = first.address

    def transfer(self, start: StartDma, region: Region | None) -> Iterator[str]:
        """Apply a transfer that stays inside ``region``; yields what is wrong with its destination."""
        descriptor = start.descriptor
        lram = self._lram[descriptor.lram : descriptor.lram + descriptor.nbytes]
        if region is None:
            return
        if start.engine is DMA_OUT:
            target = region.strided(self._defined[region.start], descriptor)
            whole = self.holds(descriptor.lram, descriptor.lram + lram.size, DATA)
            target[...] = DATA if whole else (lram == DATA).reshape(target.shape)
        elif region.writable:
            source = region.strided(self._defined[region.start], descriptor)
            lram.reshape(source.shape)[...] = source
        else:
            if region.kind == "nss":
                yield from self._fetch(descriptor)
            lram[...] = _KIND.get(region.kind, DATA)

    def _fetch(self, descriptor: DmaDescriptor) -> Iterator[str]:
        """Note where a block in a slot comes from; what another block left there is no part of it."""
        if descriptor.dims:
            yield "a block fetch with strided dims"
        slot, within = divmod(descriptor.lram, self._slot_bytes)
        if self._origin[slot] != descriptor.xram - within:
            self._origin[slot] = descriptor.xram - within
            self._lram[slot * self._slot_bytes : (slot + 1) * self._slot_bytes] = UNDEFINED

    def define(self, written: Placed) -> None:
        """Note that a slice wrote these bytes."""
        if written.is_whole:
            self._lram[written.low : written.high] = DATA
        else:
            intervals.assign(self._lram, written.exact, DATA)

    def forget(self, start: int, end: int, *, lram: bool) -> None:
        """Make bytes undefined, in LRAM or where the program may write in XRAM."""
        if lram:
            self._lram[start:end] = UNDEFINED
            return
        for region_start, defined in self._defined.items():
            defined[max(0, start - region_start) : max(0, end - region_start)] = UNDEFINED

    def first_not(self, wanted: Placed, kind: int) -> int | None:
        """The first of some LRAM bytes that is not of a kind, or None."""
        low, high = wanted.low, wanted.high
        first = self._first_other(low, high, kind)
        if first is None or wanted.is_whole:
            return first
        runs = wanted.exact
        if len(runs) <= _FEW:
            for start, end in runs.tolist():
                first = self._first_other(start, end, kind)
                if first is not None:
                    return first
            return None
        wrong = (self._lram[first:high] != kind).nonzero()[0] + first
        holders = np.searchsorted(runs[:, 0], wrong, side="right") - 1
        inside = wrong[wrong < runs[holders, 1]]
        return int(inside[0]) if inside.size else None

    def holds(self, start: int, end: int, kind: int, address: int | None = None) -> bool:
        """Whether LRAM bytes are all of a kind and, for a block, came from an XRAM address."""
        if address is not None and self._origin[start // self._slot_bytes] != address:
            return False
        return self._first_other(start, end, kind) is None

    def _first_other(self, start: int, end: int, kind: int) -> int | None:
        """The first LRAM byte of a stretch that is not of a kind, or None."""
        if self._kinds.startswith(self._alike[kind][: end - start], start):
            return None
        first = None
        for other in _OTHERS[kind]:
            place = self._kinds.find(other, start, end)
            if place >= 0:
                first = end = place
        return first

    def undefined_outputs(self) -> Iterator[tuple[str, int]]:
        """Outputs that are not completely written, with the number of missing bytes."""
        for region in self._outputs:
            missing = region.end - region.start - int(self._defined[region.start].sum())
            if missing:
                yield region.name, missing
