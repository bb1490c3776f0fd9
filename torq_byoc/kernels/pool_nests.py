"""The loop nests of one pool tile: lanes along a plane, or gathered along channels or columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from torq_byoc.kernels.columns import whole_fit
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand
from torq_byoc.kernels.graph import Node, Rescale
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region
from torq_byoc.kernels.phase_boxes import PhaseBox, phase_boxes
from torq_byoc.kernels.planes import PlaneWalk, WindowGeometry
from torq_byoc.kernels.pool_columns import ColumnGroup
from torq_byoc.kernels.portion import Portion, alu_config
from torq_byoc.kernels.rescaling import act_config, is_uniform, pair_bytes, pair_type
from torq_byoc.kernels.windows import Axis
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, Role, Tag

_MOST_PHASES = 16
"""Stride phases that a tile is worth being split into; beyond them its loads are too many."""


def per_pixel(rescale: Rescale | None) -> bool:
    """Whether the entries of a rescale differ from output pixel to output pixel."""
    return rescale is not None and rescale.axis == 2 and not is_uniform(rescale)


def borderless(axis: Axis) -> bool:
    """No window of the axis reads beyond the tensor."""
    return axis.pad <= 0 and axis.last_read(0, axis.out) < axis.size


def planar_geometry(rows: Axis, columns: Axis) -> WindowGeometry | None:
    """The plane walk of a pool, or None when its border or stride cannot be expressed, or gathering is cheaper.

    A folded stride visits every combination of its phases and shifts, so those must be exactly the kernel's.
    """
    if rows.stride * columns.stride > _MOST_PHASES and borderless(rows) and borderless(columns):
        return None
    if not all(map(is_walkable, (rows, columns))):
        return None
    if whole_fit(columns.folded(), zero_taps=False) is None:
        return None
    return WindowGeometry(rows, columns)


def is_walkable(axis: Axis) -> bool:
    """Whether a plane walk can follow an axis whatever its border: of a folded kernel it visits exactly the taps."""
    return axis.is_walkable and _is_grid(axis)


def whole_frame(rows: Axis, columns: Axis) -> tuple[int, int]:
    """First output column and width of the frame when the tile spans all columns.

    The first column is 0 for a pool that only gathers.
    """
    _, width = columns.input_span(0, columns.out)
    fit = whole_fit(columns.folded(), zero_taps=False) if planar_geometry(rows, columns) else None
    return (fit.first if fit else 0), math.ceil(width / columns.stride)


def _phases(axis: Axis) -> tuple[int, int]:
    """First phase and number of phases that a folded kernel reads."""
    phases = sorted({phase for phase, _ in axis.taps()})
    return phases[0], len(phases)


def _is_grid(axis: Axis) -> bool:
    first, count = _phases(axis)
    shifts = {shift for _, shift in axis.taps()}
    grid = {(phase, shift) for phase in range(first, first + count) for shift in shifts}
    return set(axis.taps()) == grid


@dataclass(frozen=True)
class PoolTile:
    """One tile of a pool and where it lies; ``groups`` of columns where one walk cannot express the border."""

    node: Node
    rows: Axis
    columns: Axis
    region: Region
    output: Placement
    source: Placement
    entries: ConstantPlacement | None
    fold: Op1
    groups: tuple[ColumnGroup, ...] = ()
    portion: Portion | None = None

    @property
    def taps(self) -> Region:
        """The part of the kernel that is folded: rows and columns."""
        return self.portion.box if self.portion else Region.whole((self.rows.kernel, self.columns.kernel))

    def planar(self) -> list[LoopNest]:
        """Lanes along the pixels of a plane, a nest for each group of columns; empty when no walk can be expressed.

        Per-pixel entries are packed for a frame as wide as the whole tensor's; where the tile's rows lie further
        apart, every row is a nest of its own.
        """
        geometry = planar_geometry(self.rows, self.columns)
        if geometry is None:
            return [part._plane_nest(WindowGeometry(self.rows, part.columns)) for part in self._by_columns()]
        pitch = self.source.strides[-2] // self.source.dtype.size
        if per_pixel(self.node.rescale) and pitch != whole_frame(self.rows, self.columns)[1]:
            return [replace(self, region=row)._plane_nest(geometry) for row in _rows(self.region)]
        return [self._plane_nest(geometry)]

    def _by_columns(self) -> Iterator[PoolTile]:
        """The parts of the tile that lie in each group of columns."""
        region = self.region
        for group in self.groups:
            first, end = max(group.first, region.start[3]), min(group.end, region.start[3] + region.extent[3])
            if first < end:
                part = Region((*region.start[:3], first), (*region.extent[:3], end - first))
                yield replace(self, columns=group.axis, region=part)

    def _plane_nest(self, geometry: WindowGeometry) -> LoopNest:
        walk = geometry.walk(self.region, self.output, self.source, self.node.attrs.get("pad_value", 0))
        (first_y, phases_y), (first_x, phases_x) = _phases(self.rows), _phases(self.columns)
        loops = (
            LoopSpec("n", self.region.extent[0]),
            LoopSpec("channel", self.region.extent[1]),
            LoopSpec("pixel", walk.lanes, Role.LANE, Tag.FLAT),
            LoopSpec("phase_y", phases_y, Role.REDUCE),
            LoopSpec("phase_x", phases_x, Role.REDUCE),
            LoopSpec("i", geometry.plane_rows.kernel, Role.REDUCE, Tag.KERNEL_ROW),
            LoopSpec("j", geometry.plane_columns.kernel, Role.REDUCE, Tag.KERNEL_COLUMN),
        )
        image, channel = self.source.strides[:2]
        address = walk.data + self._channel() * channel + first_y * walk.fold[0] + first_x * walk.fold[1]
        strides = {"n": image, "channel": channel, "phase_y": walk.fold[0], "phase_x": walk.fold[1]}
        return LoopNest(
            loops=loops,
            data=Operand(address, self.source.dtype, strides),
            bias=self._plane_bias(walk),
            result=Operand(
                walk.result, self.output.dtype, {"n": self.output.strides[0], "channel": self.output.strides[1]}
            ),
            alu=AluConfig(Op0.DBYP, self.fold),
            act=act_config(self.node.rescale, self.source.dtype),
            plane=walk.plane,
            window=walk.window,
        )

    def _channel(self) -> int:
        return self.region.start[1] - self.source.region.start[1]

    def _plane_bias(self, walk: PlaneWalk) -> Operand | None:
        if not per_pixel(self.node.rescale) or self.entries is None:
            return self.channel_bias()
        first, _ = whole_frame(self.rows, self.columns)
        entry = pair_bytes(self.source.dtype.is_float)
        address = self.entries.granule(self.region.start[2]) + (first - walk.fit.first) * entry
        return Operand(address, pair_type(self.source.dtype.is_float), {"pixel": entry})

    def channel_bias(self) -> Operand | None:
        """Bias/scale entries that are one for all or one a channel."""
        if self.entries is None:
            return None
        is_float = self.source.dtype.is_float
        if is_uniform(self.node.rescale):
            return Operand(self.entries.granule(0), pair_type(is_float))
        return Operand(
            self.entries.granule(self.region.start[1]), pair_type(is_float), {"channel": pair_bytes(is_float)}
        )


def _rows(region: Region) -> Iterator[Region]:
    """A region cut into its rows."""
    for row in range(region.start[2], region.start[2] + region.extent[2]):
        start, extent = (*region.start[:2], row, region.start[3]), (*region.extent[:2], 1, region.extent[3])
        yield Region(start, extent)


def gathered(tile: PoolTile) -> Iterator[list[LoopNest]]:
    """Nests whose lanes are gathered from a dense tile, along channels and along columns.

    Only for windows that need no border.  Per-pixel entries follow the lanes along columns.
    """
    inside = borderless(tile.rows) and borderless(tile.columns)
    if not inside or tile.source.phases != (1, 1):
        return
    lanes = ("column",) if per_pixel(tile.node.rescale) else ("channel", "column")
    for lane in lanes:
        yield [_gather_nest(tile, box, lane) for box in phase_boxes(tile.output, tile.region)]


def carried(tile: PoolTile) -> list[LoopNest]:
    """The nest of a portion of the kernel: lanes are gathered along the axis that the region spans."""
    along_row = per_pixel(tile.node.rescale) or tile.region.extent[3] > 1
    lane = "column" if along_row else "channel"
    return [_gather_nest(tile, box, lane) for box in phase_boxes(tile.output, tile.region)]


def _gather_nest(tile: PoolTile, box: PhaseBox, lane: str) -> LoopNest:
    source, output, region = tile.source.strides, tile.output.strides, tile.region
    steps = {"row": tile.rows.stride * source[2], "column": tile.columns.stride * source[3]}
    outer = [
        LoopSpec("n", region.extent[0]),
        LoopSpec("channel", region.extent[1]),
        LoopSpec("row", box.count[0]),
        LoopSpec("column", box.count[1]),
    ]
    loops = [
        *(loop for loop in outer if loop.name != lane),
        *(msgspec.structs.replace(loop, role=Role.LANE) for loop in outer if loop.name == lane),
        LoopSpec("i", tile.taps.extent[0], Role.REDUCE),
        LoopSpec("j", tile.taps.extent[1], Role.REDUCE),
    ]
    origin = (
        region.start[0],
        region.start[1],
        box.first[0] * tile.rows.stride - tile.rows.pad + tile.taps.start[0] * tile.rows.dilation,
        box.first[1] * tile.columns.stride - tile.columns.pad + tile.taps.start[1] * tile.columns.dilation,
    )
    return LoopNest(
        loops=tuple(loops),
        data=Operand(
            tile.source.offset_of(origin),
            tile.source.dtype,
            {
                "n": source[0],
                "channel": source[1],
                "row": box.step[0] * steps["row"],
                "column": box.step[1] * steps["column"],
                "i": tile.rows.dilation * source[2],
                "j": tile.columns.dilation * source[3],
            },
        ),
        bias=_gather_bias(tile, box),
        result=Operand(
            box.address,
            tile.output.dtype,
            {"n": output[0], "channel": output[1], "row": output[2], "column": output[3]},
        ),
        alu=alu_config(Op0.DBYP, tile.fold, tile.portion),
        act=act_config(tile.node.rescale, tile.source.dtype),
    )


def _gather_bias(tile: PoolTile, box: PhaseBox) -> Operand | None:
    if tile.entries is None or not per_pixel(tile.node.rescale):
        return tile.channel_bias()
    is_float = tile.source.dtype.is_float
    entry = pair_bytes(is_float)
    first, _ = whole_frame(tile.rows, tile.columns)
    address = tile.entries.granule(box.first[0]) + (first + box.first[1]) * entry
    strides = {"row": box.step[0] * tile.entries.granule_bytes, "column": box.step[1] * entry}
    return Operand(address, pair_type(is_float), strides)
