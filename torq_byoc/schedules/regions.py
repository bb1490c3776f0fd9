"""Reading the tile regions of a scheduled TIR function back: what each tile loads and stores.

The scheduled function is lowered until its blocks are plain statements and every region is an expression of
the loop variables.  Widened over the loops inside a tile, a region is an expression of the tile loops alone
(``affine``).  It may reach over the border of a tensor; clipping happens when a tile is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.affine import RegionAxis, axis_of
from torq_byoc.schedules.tir_schedule import TILE_LOOP, TRANSFER


@dataclass(frozen=True)
class Transfer:
    """A load or store of a scheduled function.

    Attributes:
        kind: "load" or "store".
        buffer: name of the XRAM side: an input placeholder, or the result.
        shape: shape of that tensor.
        axes: the region of a tile, one entry a tensor axis.
    """

    kind: str
    buffer: str
    shape: tuple[int, ...]
    axes: tuple[RegionAxis, ...]

    def region(self, box: Region, tile: Sequence[int]) -> Region:
        """What a tile transfers, clipped to the tensor.

        Args:
            box: the part of the result that the tile computes; behind it, the portion of the reduction when it
                does so in portions.
            tile: extents of a full tile, and of a full portion.
        """
        index = [start // size for start, size in zip(box.start, tile, strict=True)]
        missing = [size - extent for size, extent in zip(tile, box.extent, strict=True)]
        starts, extents = [], []
        for axis, size in zip(self.axes, self.shape, strict=True):
            first, end = axis.bounds(index, tile, missing)
            low = min(max(first, 0), size)
            starts.append(low)
            extents.append(min(max(end, low), size) - low)
        return Region(tuple(starts), tuple(extents))


def read_back(schedule: Any) -> tuple[Transfer, ...]:
    """The transfers of a scheduled function, in program order.

    Args:
        schedule: what ``tir_schedule.apply_decision`` returned.
    """
    return tuple(_Reader().read(lower_regions(schedule.mod)["main"]))


def lower_regions(module: Any) -> Any:
    """Turn blocks into plain statements whose regions are expressions of the loop variables."""
    import tvm
    from tvm import s_tir

    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
    ]
    return tvm.transform.Sequential(passes)(module)


class _Reader:
    """Walks a lowered function; collects the transfers."""

    def __init__(self) -> None:
        self.tiles: dict[Any, int] = {}
        self.inner: dict[Any, Any] = {}
        self.found: list[Transfer] = []

    def read(self, func: Any) -> list[Transfer]:
        """All transfers of a function."""
        self._walk(func.body)
        return self.found

    def _walk(self, statement: Any) -> None:
        from tvm import s_tir, tirx

        if isinstance(statement, tirx.For):
            self._loop(statement)
        elif isinstance(statement, tirx.SeqStmt):
            for child in statement.seq:
                self._walk(child)
        elif isinstance(statement, s_tir.SBlockRealize):
            if TRANSFER in statement.block.annotations:
                self.found.append(self._transfer(statement.block))
            else:
                self._walk(statement.block.body)

    def _loop(self, loop: Any) -> None:
        import tvm

        if TILE_LOOP in loop.annotations:
            self.tiles[loop.loop_var] = int(loop.annotations[TILE_LOOP])
        else:
            self.inner[loop.loop_var] = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
        self._walk(loop.body)
        self.tiles.pop(loop.loop_var, None)
        self.inner.pop(loop.loop_var, None)

    def _transfer(self, block: Any) -> Transfer:
        from tvm import sym, tirx

        kind = str(block.annotations[TRANSFER])
        region = (block.reads if kind == "load" else block.writes)[0]
        boxes = sym.estimate_region_upper_bound(list(region.region), self.inner, tirx.const(True, "bool"))
        axes = tuple(axis_of(box.min_value, box.max_value, self.tiles) for box in boxes)
        shape = tuple(int(extent) for extent in region.source.shape)
        return Transfer(kind, str(region.source.name), shape, axes)
