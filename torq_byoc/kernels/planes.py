"""From tile placements to the machine's plane walk: padding, stride phases, frame and output window.

The lanes of a planar nest run over a frame as wide as the rows of the input tile lie apart, so that a vector
runs across row ends; the output window drops the columns that are no outputs.
"""

from __future__ import annotations

import math

import msgspec

from torq_byoc.errors import InternalError
from torq_byoc.kernels.columns import ColumnFit, TileColumns, fit_columns
from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.kernels.windows import Axis
from torq_byoc.npu_model.isa import OutputWindow, Plane


class PlaneWalk(msgspec.Struct, frozen=True, gc=False):
    """The spatial part of a planar nest.

    Attributes:
        data: LRAM byte address of the first channel of the region's first image, at the plane's origin.
        result: LRAM byte address of the first element of the region.
        lanes: positions of the frame.
        fold: bytes between folded row phases and column phases, 0 where an axis is not folded.
    """

    data: int
    result: int
    lanes: int
    plane: Plane
    window: OutputWindow
    fit: ColumnFit
    fold: tuple[int, int]


class WindowGeometry(msgspec.Struct, frozen=True, gc=False):
    """A window operator's axes, and how many zero taps its packed kernel has on either side of a row."""

    rows: Axis
    columns: Axis
    lead: int = 0
    trail: int = 0

    @property
    def plane_rows(self) -> Axis:
        """The row axis as the plane walk sees it."""
        return self.rows.folded()

    @property
    def plane_columns(self) -> Axis:
        """The column axis as the plane walk sees it."""
        return self.columns.folded()

    @property
    def phases(self) -> tuple[int, int]:
        """Stride phases that the input tile lies in."""
        return self.rows.stride, self.columns.stride

    def whole_lanes(self) -> int:
        """Positions of the frame when one tile spans the whole output (without dropped leading columns)."""
        _, width = self.columns.input_span(0, self.columns.out)
        return (self.rows.out - 1) * math.ceil(width / self.columns.stride) + self.columns.out

    def walk(self, region: Region, output: Placement, source: Placement, pad_value: int) -> PlaneWalk:
        """The plane walk that computes ``region`` (NCHW) of the output from a placed input tile.

        Raises:
            InternalError: the tile's columns cannot be walked (``tile_steps`` forbids such tiles).
        """
        if source.phases != self.phases:
            raise InternalError(
                "a window operator was given an input tile in the wrong layout",
                why=f"phases {source.phases}, wanted {self.phases}",
            )
        size = source.dtype.size
        fit = self._fit(region, source)
        row = _RowFit.of(self.plane_rows, self.rows.unit, region, source)
        row_shift, row_phase = _shift(row.skip, source.strides[-2], source.phase_strides[0], self.plane_rows.stride)
        column_shift, column_phase = _shift(fit.skip, size, source.phase_strides[1], self.plane_columns.stride)
        pitch = source.strides[-2] // size
        plane = Plane(
            height=row.height - row.skip,
            width=self._tile_width(source) - fit.skip,
            frame_width=pitch,
            row_stride=source.strides[-2],
            stride_y=self.plane_rows.stride,
            stride_x=self.plane_columns.stride,
            phase_stride_y=row_phase,
            phase_stride_x=column_phase,
            dilation_y=self.plane_rows.dilation,
            dilation_x=self.plane_columns.dilation,
            pad_top=row.pad,
            pad_left=fit.pad,
            pad_value=pad_value,
        )
        result, window = output_window(output, region, pitch, fit.first)
        image = (region.start[0] - source.region.start[0]) * source.strides[0]
        return PlaneWalk(
            data=source.address + image + row_shift + column_shift,
            result=result,
            lanes=(region.extent[2] - 1) * pitch + fit.first + region.extent[3],
            plane=plane,
            window=window,
            fit=fit,
            fold=(
                source.phase_strides[0] if self.rows.is_folded else 0,
                source.phase_strides[1] if self.columns.is_folded else 0,
            ),
        )

    def _tile_width(self, source: Placement) -> int:
        return source.region.extent[-1] // self.columns.unit

    def _fit(self, region: Region, source: Placement) -> ColumnFit:
        unit = self.columns.unit
        tile = TileColumns(
            begin=source.region.start[-1] // unit,
            width=self._tile_width(source),
            pitch=source.strides[-2] // source.dtype.size,
            start=region.start[3],
            extent=region.extent[3],
        )
        fit = fit_columns(self.plane_columns, tile, self.lead, self.trail)
        if fit is None:
            raise InternalError(
                "the columns of a tile cannot be expressed by the machine's border",
                why=f"columns {tile} of axis {self.plane_columns}",
            )
        return fit


class _RowFit(msgspec.Struct, frozen=True, gc=False):
    """Rows of a tile: how many there are, how many leading ones are left out, ``Plane.pad_top``."""

    height: int
    skip: int
    pad: int

    @classmethod
    def of(cls, axis: Axis, unit: int, region: Region, source: Placement) -> _RowFit:
        border = axis.pad + source.region.start[-2] // unit - region.start[2] * axis.stride
        return cls(source.region.extent[-2] // unit, max(0, -border), max(0, border))


def _shift(count: int, step: int, phase: int, stride: int) -> tuple[int, int]:
    """Move a plane's origin by ``count`` elements along an axis.

    Returns:
        Bytes to add to the address, and the distance between the axis' phase planes seen from there: after
        an odd number of elements the two phases of a stride-2 axis change places.
    """
    if stride == 1:
        return count * step, 0
    if count % 2 == 0:
        return count // 2 * step, phase
    return count // 2 * step + phase, step - phase


def output_window(output: Placement, region: Region, frame_width: int, first: int) -> tuple[int, OutputWindow]:
    """The writer's plane walk for ``region`` of an output tile, dense or in stride phases.

    Args:
        output: where the tile lies; covers the region.
        region: the box to write (NCHW).
        frame_width: columns of the frame the lanes run over.
        first: first column of the frame that is an output.

    Returns:
        The LRAM byte address of the region's first element, and the window.
    """
    size = output.dtype.size
    offset = [begin - start for begin, start in zip(region.start, output.region.start, strict=True)]
    address = output.address + offset[0] * output.strides[0] + offset[1] * output.strides[1]
    shift_y, phase_y = _phase_origin(offset[2], output.strides[2], output.phases[0], output.phase_strides[0])
    shift_x, phase_x = _phase_origin(offset[3], size, output.phases[1], output.phase_strides[1])
    window = OutputWindow(
        frame_width=frame_width,
        first_column=first,
        columns=region.extent[3],
        row_stride=output.strides[2],
        column_stride=size,
        stride_y=output.phases[0],
        stride_x=output.phases[1],
        phase_stride_y=phase_y,
        phase_stride_x=phase_x,
    )
    return address + shift_y + shift_x, window


def _phase_origin(offset: int, step: int, phases: int, phase: int) -> tuple[int, int]:
    if phases > 2:
        if offset % phases:
            raise InternalError(
                "a result can start inside a stride phase only for stride 2",
                why=f"element {offset} of a tile in {phases} phases",
            )
        return offset // phases * step, phase
    return _shift(offset, step, phase, phases)
