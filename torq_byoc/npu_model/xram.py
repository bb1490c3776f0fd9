"""The XRAM of a program as regions: constant segments, inputs, outputs, and the arena."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.footprint import transfer_xram_bounds
from torq_byoc.npu_model.isa import DmaDescriptor
from torq_byoc.npu_model.program import Program, Segment


@dataclass(frozen=True, eq=False)
class Region:
    """A stretch of XRAM with one owner.

    ``kind`` is a segment kind, "input", "output" or "arena"; ``data`` is the constant content of a segment.
    """

    start: int
    end: int
    kind: str
    name: str
    data: np.ndarray | None = None

    @property
    def writable(self) -> bool:
        """Whether the program may write here."""
        return self.kind in ("output", "arena")

    def strided(self, array: np.ndarray, descriptor: DmaDescriptor) -> np.ndarray:
        """The bytes a transfer touches, as a view of an array of the region's size, in transfer order."""
        low, _ = transfer_xram_bounds(descriptor)
        first = descriptor.xram - self.start
        shape = (*(count for count, _ in descriptor.dims), descriptor.run)
        strides = (*(stride for _, stride in descriptor.dims), 1)
        if low < self.start:
            raise ValueError(f"the transfer starts before region {self.name!r}")
        return np.ndarray(shape, array.dtype, array, first, strides)


class XramMap:
    """Finds the region that a transfer lies in.  Neighbouring segments of one kind form one region."""

    def __init__(self, program: Program) -> None:
        self.regions = sorted(_regions(program), key=lambda region: (region.start, region.end))
        self._starts = [region.start for region in self.regions]

    def overlaps(self) -> Iterable[tuple[Region, Region]]:
        """Pairs of neighbouring regions that share bytes."""
        for left, right in zip(self.regions, self.regions[1:], strict=False):
            if right.start < left.end:
                yield left, right

    def find(self, descriptor: DmaDescriptor) -> Region | None:
        """The region that holds all of a transfer, or None."""
        return self.around(*transfer_xram_bounds(descriptor))

    def around(self, start: int, end: int) -> Region | None:
        """The region that holds the bytes start..end-1, or None."""
        position = bisect_right(self._starts, start) - 1
        if position < 0 or end > self.regions[position].end:
            return None
        return self.regions[position]


def _regions(program: Program) -> list[Region]:
    regions = _constant_regions(program)
    for kind, bindings in (("input", program.inputs), ("output", program.outputs)):
        regions += [Region(b.address, b.address + b.nbytes, kind, b.name) for b in bindings if b.nbytes]
    if program.arena_bytes:
        end = program.arena_address + program.arena_bytes
        regions.append(Region(program.arena_address, end, "arena", "arena"))
    return regions


def _constant_regions(program: Program) -> list[Region]:
    groups: list[list[Segment]] = []
    for segment in sorted((s for s in program.segments if s.data), key=lambda s: s.address):
        last = groups[-1][-1] if groups else None
        if last and last.kind == segment.kind and last.address + len(last.data) == segment.address:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    regions = []
    for group in groups:
        data = np.frombuffer(b"".join(segment.data for segment in group), np.uint8)
        start, kind = group[0].address, group[0].kind
        regions.append(Region(start, start + data.size, kind, f"{kind} segment at {start:#x}", data))
    return regions
