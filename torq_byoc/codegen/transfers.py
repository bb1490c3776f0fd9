"""Tile regions as DMA transfers: dense boxes, and boxes split into stride phases on the way in."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from torq_byoc.codegen.hl import Transfer
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig


def row_major_strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Byte strides of a dense tensor of ``size``-byte elements."""
    return _row_major(tuple(shape), size)


@functools.lru_cache(maxsize=4096)
def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = [size] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def dense_transfers(strides: Sequence[int], region: Region, size: int, config: NpuConfig) -> list[Transfer]:
    """Transfers that move a box of an XRAM tensor to or from a dense LRAM tile.

    Args:
        strides: bytes between neighbours along each axis of the XRAM tensor.
        region: the box.
        size: bytes an element.
        config: limits of the DMA descriptor.

    Returns:
        As few transfers as the descriptor's strided dims allow; empty for an empty box.
    """
    if 0 in region.extent:
        return []
    base = sum([start * stride for start, stride in zip(region.start, strides, strict=True)])
    pieces = _dense_pieces(region.extent, tuple(strides), size, config.limits.dma_strided_dims)
    return [Transfer(piece.lram_offset, base + piece.xram_offset, piece.run, piece.dims) for piece in pieces]


@functools.lru_cache(maxsize=4096)
def _dense_pieces(
    extent: tuple[int, ...], strides: tuple[int, ...], size: int, strided_dims: int
) -> tuple[Transfer, ...]:
    """The transfers of a box at the start of its tensor: those of the tiles of a tensor are alike."""
    return tuple(_descriptors(list(zip(extent, strides, strict=True)), 0, 0, size, strided_dims))


def phased_extent(region: Region, phases: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of one phase plane of a region."""
    return math.ceil(region.extent[-2] / phases[0]), math.ceil(region.extent[-1] / phases[1])


def phased_transfers(
    shape: Sequence[int],
    strides: Sequence[int],
    region: Region,
    size: int,
    phases: tuple[int, int],
    kept: tuple[int, int],
    config: NpuConfig,
) -> list[Transfer]:
    """Transfers that move a box of an XRAM tensor into an LRAM tile split into stride phases.

    The tile is [py, px, ..., rows / py, columns / px] (``kernels.kernel.Layout``), or has the first phases alone that
    are ``kept`` along either axis.  A phase with fewer rows
    or columns than the others leaves holes in its LRAM planes; as the LRAM side of a transfer is
    contiguous, the holes are filled with whatever follows in XRAM, except at the very end of the tensor,
    where they stay unwritten (no kernel reads them).  So when the region's rows or columns are no multiple
    of the phases the transfers may read any part of the tensor.
    """
    rows, columns = phased_extent(region, phases)
    base = sum(start * stride for start, stride in zip(region.start, strides, strict=True))
    outer = list(zip(region.extent[:-2], strides[:-2], strict=True))
    phase_bytes = math.prod(count for count, _ in outer) * rows * columns * size
    transfers: list[Transfer] = []
    for phase_y, phase_x in product(range(kept[0]), range(kept[1])):
        present = (
            math.ceil((region.extent[-2] - phase_y) / phases[0]),
            math.ceil((region.extent[-1] - phase_x) / phases[1]),
        )
        if min(present) <= 0:
            continue
        plane = _PhasePlanes(
            (rows, columns),
            present,
            (phases[0] * strides[-2], phases[1] * strides[-1]),
            size,
            math.prod(shape) * size,
            config.limits.dma_strided_dims,
        )
        lram = (phase_y * kept[1] + phase_x) * phase_bytes
        transfers += plane.transfers(outer, base + phase_y * strides[-2] + phase_x * strides[-1], lram)
    return transfers


@dataclass(frozen=True)
class _PhasePlanes:
    """The planes of one phase: full extent in LRAM, extent that exists, XRAM steps, end of the tensor, and the strided
    dims that a descriptor has."""

    extent: tuple[int, int]
    present: tuple[int, int]
    steps: tuple[int, int]
    size: int
    limit: int
    strided_dims: int

    def transfers(self, outer: list[tuple[int, int]], xram: int, lram: int) -> Iterator[Transfer]:
        """Everything in one descriptor when it stays inside the tensor; else all but the last plane so."""
        walk = [*outer, *zip(self.extent, self.steps, strict=True)]
        last = xram + sum((count - 1) * stride for count, stride in walk) + self.size
        if last <= self.limit:
            yield from _descriptors(walk, xram, lram, self.size, self.strided_dims)
        elif not outer:
            yield from self._last_plane(xram, lram)
        else:
            (count, stride), inner = outer[0], outer[1:]
            inner_bytes = math.prod(c for c, _ in inner) * math.prod(self.extent) * self.size
            if count > 1:
                yield from self.transfers([(count - 1, stride), *inner], xram, lram)
            last_index = count - 1
            yield from self.transfers(inner, xram + last_index * stride, lram + last_index * inner_bytes)

    def _last_plane(self, xram: int, lram: int) -> Iterator[Transfer]:
        rows, width = self.present[0], self.extent[1]
        end = xram + (rows - 1) * self.steps[0] + (width - 1) * self.steps[1] + self.size
        whole = rows if end <= self.limit else rows - 1
        if whole:
            walk = [(whole, self.steps[0]), (width, self.steps[1])]
            yield from _descriptors(walk, xram, lram, self.size, self.strided_dims)
        if whole < rows:
            start, target = xram + whole * self.steps[0], lram + whole * width * self.size
            yield from _descriptors([(self.present[1], self.steps[1])], start, target, self.size, self.strided_dims)


def _descriptors(
    walk: Sequence[tuple[int, int]], xram: int, lram: int, size: int, strided_dims: int
) -> Iterator[Transfer]:
    """Merge neighbouring dims that are contiguous, then emit descriptors of at most the allowed dims."""
    run = size
    merged: list[tuple[int, int]] = []
    for count, stride in reversed(walk):
        if count == 1:
            continue
        if not merged and stride == run:
            run *= count
        elif merged and stride == merged[0][0] * merged[0][1]:
            merged[0] = (merged[0][0] * count, merged[0][1])
        else:
            merged.insert(0, (count, stride))
    outer, inner = merged[:-strided_dims], merged[-strided_dims:]
    inner_bytes = run * math.prod(count for count, _ in inner)
    for position, index in enumerate(product(*(range(count) for count, _ in outer))):
        offset = sum(i * stride for i, (_, stride) in zip(index, outer, strict=True))
        yield Transfer(lram + position * inner_bytes, xram + offset, run, tuple(inner))
