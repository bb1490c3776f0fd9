"""Outputs of a tile by the stride phase in which they lie, for nests that do not walk a plane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torq_byoc.kernels.kernel import Placement, Region


@dataclass(frozen=True)
class PhaseBox:
    """Outputs of one stride phase of the output tile: along rows and columns the first index, the distance of
    neighbours, and their number; and the LRAM address of the first."""

    first: tuple[int, int]
    step: tuple[int, int]
    count: tuple[int, int]
    address: int


def phase_boxes(output: Placement, region: Region) -> Iterator[PhaseBox]:
    """The region (NCHW) cut into the stride phases in which its output tile lies; one box for a dense tile."""
    start, extent = region.start, region.extent
    corner = output.address + sum((start[d] - output.region.start[d]) * output.strides[d] for d in (0, 1))
    for residue_y in range(min(output.phases[0], extent[2])):
        for residue_x in range(min(output.phases[1], extent[3])):
            address, first, count = corner, [], []
            for axis, residue in ((2, residue_y), (3, residue_x)):
                phases, phase_stride = output.phases[axis - 2], output.phase_strides[axis - 2]
                index = start[axis] + residue
                row, phase = divmod(index - output.region.start[axis], phases)
                address += row * output.strides[axis] + phase * phase_stride
                first.append(index)
                count.append(math.ceil((extent[axis] - residue) / phases))
            yield PhaseBox((first[0], first[1]), output.phases, (count[0], count[1]), address)
