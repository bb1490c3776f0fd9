"""Where a tile's operands lie as far as the cost model cares: strides and granules, no addresses."""

from __future__ import annotations

from dataclasses import dataclass

from torq_byoc.kernels.kernel import PackedConstant, Placement, Region
from torq_byoc.kernels.portion import Portion
from torq_byoc.npu_model.dtypes import DType


@dataclass(frozen=True)
class Granules:
    """How a packed constant follows the output, without its data."""

    axis: int | None
    step: int
    count: int
    nbytes: int
    pieces: int

    @classmethod
    def of(cls, constant: PackedConstant, rank: int) -> Granules:
        """The granules of a constant of an output of the given rank."""
        axis = None if constant.axis is None else constant.axis % rank
        granules, nbytes = constant.data.shape
        return cls(axis, constant.step, granules, nbytes, constant.pieces)

    def bytes_of(self, portion: Portion | None) -> int:
        """Bytes of a granule that a portion of the reduction needs; all of them without one."""
        if portion is None or self.pieces == 1:
            return self.nbytes
        return self.nbytes // self.pieces * portion.box.extent[0]

    def cover(self, start: int, extent: int) -> tuple[int, int]:
        """First and number of the granules that output indices [start, start + extent) need."""
        first = start // self.step
        return first, -(-(start + extent) // self.step) - first


def dense(region: Region, dtype: DType, phases: tuple[int, int] = (1, 1)) -> Placement:
    """A tile of exactly this region, row-major, in phase planes where asked for."""
    extent = list(region.extent)
    for axis, phase in zip((-2, -1), phases, strict=True):
        if phase > 1:
            extent[axis] = -(-extent[axis] // phase)
    strides = [dtype.size] * len(extent)
    for axis in range(len(extent) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * extent[axis + 1]
    planes = (0, 0)
    if phases != (1, 1):
        plane = strides[-2] * extent[-2]
        planes = (plane * phases[1], plane)
        for axis in range(len(extent) - 2):
            strides[axis] *= phases[0] * phases[1]
    return Placement(0, region, tuple(strides), dtype, phases, planes)
