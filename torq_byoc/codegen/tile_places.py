"""Where a tile of a tensor lies in its LRAM buffer, and the transfers that bring it there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torq_byoc.codegen.hl import PlacedOperand, Transfer
from torq_byoc.codegen.transfers import dense_transfers, phased_extent, phased_transfers, row_major_strides
from torq_byoc.kernels.kernel import Layout, Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType

DENSE = (1, 1)
ROW_MAJOR = Layout()


def tile_place(
    buffer: int,
    shape: Sequence[int],
    dtype: DType,
    region: Region,
    layout: Layout = ROW_MAJOR,
    order: tuple[int, ...] = (),
) -> PlacedOperand:
    """A buffer that holds exactly a box of a tensor, dense or in stride phases."""
    extent = _stored_extent(region, layout.phases)
    plane = math.prod(extent) * dtype.size
    kept, planes = DENSE, (0, 0)
    if layout.phases != DENSE:
        kept = layout.kept
        planes = (plane * kept[1], plane)
    strides = row_major_strides(extent, dtype.size)
    return PlacedOperand(buffer, 0, tuple(shape), region, strides, dtype, layout.phases, planes, order, kept)


def layout_of(place: PlacedOperand) -> Layout:
    """How a tile lies."""
    rows, columns = (kept < phase for kept, phase in zip(place.kept, place.phases, strict=True))
    return Layout(place.phases, (rows, columns))


def whole_place(buffer: int, shape: Sequence[int], dtype: DType) -> PlacedOperand:
    """A buffer that holds a whole tensor."""
    return tile_place(buffer, shape, dtype, Region.whole(shape))


def absent_place(shape: Sequence[int], dtype: DType, region: Region) -> PlacedOperand:
    """An operand that a tile leaves out."""
    return tile_place(-1, shape, dtype, region)


def place_bytes(place: PlacedOperand) -> int:
    """Bytes of the buffer behind ``tile_place``."""
    extent = _stored_extent(place.region, place.phases)
    return math.prod(extent) * place.dtype.size * math.prod(place.kept)


def xram_strides(place: PlacedOperand) -> tuple[int, ...]:
    """Bytes between neighbours along each axis of a tile's tensor in XRAM."""
    if not place.order:
        return row_major_strides(place.shape, place.dtype.size)
    image = [place.shape[place.order.index(axis)] for axis in range(len(place.order))]
    strides = row_major_strides(image, place.dtype.size)
    return tuple(strides[axis] for axis in place.order)


def fill(place: PlacedOperand, config: NpuConfig) -> tuple[list[Transfer], Region | None]:
    """The transfers that fill a tile from its XRAM tensor, and the part of the tensor that they read.

    None stands for anywhere: incomplete phase planes are filled up with what follows in XRAM.
    """
    size, steps = place.dtype.size, xram_strides(place)
    if place.phases == DENSE:
        return dense_transfers(steps, place.region, size, config), place.region
    transfers = phased_transfers(place.shape, steps, place.region, size, place.phases, place.kept, config)
    axes = zip(place.region.extent[-2:], place.phases, place.kept, strict=True)
    whole = all(extent % phase == 0 or kept == 1 for extent, phase, kept in axes)
    return transfers, place.region if whole else None


def _stored_extent(region: Region, phases: tuple[int, int]) -> tuple[int, ...]:
    """Extents of what is stored, of one phase plane where there are phases."""
    return region.extent if phases == DENSE else (*region.extent[:-2], *phased_extent(region, phases))
