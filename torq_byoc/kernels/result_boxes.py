"""An output box of an element-wise kernel as views that one nest can walk, also where it lies in stride phases.

A dense tile is one box.  In stride phases (the layout a strided window operator reads) rows and columns of the box
become one flat axis, along which the writer's plane walk places the results: no more cycles than a dense tile takes.
That needs operands whose planes are contiguous; where one is not, every stride phase is a box of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.kernels.phase_boxes import PhaseBox, phase_boxes
from torq_byoc.kernels.planes import output_window
from torq_byoc.kernels.views import View, view

_SPLIT_BYTES = 2
"""Largest element that the writer's even-odd split takes (hardware doc 1.6)."""


class ResultBox(msgspec.Struct, frozen=True, gc=False):
    """Views over one box: the result, the operands, and the B and W operands where there are any."""

    extent: tuple[int, ...]
    target: View
    operands: tuple[View, ...]
    bias: View | None = None
    weight: View | None = None


def result_boxes(
    output: Placement,
    region: Region,
    operands: Sequence[View],
    bias: View | None = None,
    weight: View | None = None,
    *,
    apart: bool = False,
) -> list[ResultBox]:
    """The boxes that together are ``region`` of an output tile.

    Args:
        output: where the tile lies; covers the region.
        region: the box to write, at least two axes for a tile in stride phases.
        operands: data over that box, dense.
        bias, weight: the B and the W operand over that box.
        apart: every operand has a bus of its own, so that they need not be walked alike.
    """
    entries = (bias, weight)
    if output.phases == (1, 1):
        return [ResultBox(region.extent, view(output, region.start), tuple(operands), *entries)]
    views = (*operands, *filter(None, entries))
    plane = region.extent[-2] * region.extent[-1]
    alike = apart or all(_steps(operand, region) == _steps(operands[0], region) for operand in operands)
    flat = all(operand.strides[-2] == operand.strides[-1] * region.extent[-1] for operand in views)
    if alike and flat and plane > 1 and output.dtype.size <= _SPLIT_BYTES:
        return [_flat(output, region, operands, entries)]
    return [_of_phase(box, output, region, operands, entries) for box in phase_boxes(output, region)]


def _steps(operand: View, region: Region) -> list[int]:
    """Strides along the axes that the box spans."""
    return [stride for stride, extent in zip(operand.strides, region.extent, strict=True) if extent > 1]


def _flat(output: Placement, region: Region, operands: Sequence[View], entries: Sequence[View | None]) -> ResultBox:
    address, window = output_window(output, region, region.extent[-1], 0)
    target = View(address, output.dtype, (*output.strides[:-2], 0), window)

    def flattened(operand: View) -> View:
        return replace(operand, strides=(*operand.strides[:-2], operand.strides[-1]))

    extent = (*region.extent[:-2], region.extent[-2] * region.extent[-1])
    return ResultBox(
        extent, target, tuple(map(flattened, operands)), *(entry and flattened(entry) for entry in entries)
    )


def _of_phase(
    box: PhaseBox, output: Placement, region: Region, operands: Sequence[View], entries: Sequence[View | None]
) -> ResultBox:
    offset = [0] * len(region.start)
    offset[-2:] = [first - start for first, start in zip(box.first, region.start[-2:], strict=True)]

    def strided(operand: View) -> View:
        steps = [stride * step for stride, step in zip(operand.strides[-2:], box.step, strict=True)]
        return replace(operand.shifted(offset), strides=(*operand.strides[:-2], *steps))

    target = View(box.address, output.dtype, output.strides)
    extent = (*region.extent[:-2], *box.count)
    moved = (entry and strided(entry) for entry in entries)
    return ResultBox(extent, target, tuple(map(strided, operands)), *moved)
