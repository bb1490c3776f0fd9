"""Fitting the columns of a window operator to the machine's left and right border.

The machine pads a row either not at all or by the full border of the kernel, ``dilation * (KW // 2)`` or
``dilation * ((KW - 1) // 2)`` on the left and the rest on the right.  Any other border is reached by three
exact means, cheapest first: leave out leading columns of the tile, drop leading columns of the frame
(the output window), and let the kernel grow by zero taps on either side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import msgspec

from torq_byoc.kernels.windows import Axis


class ColumnFit(msgspec.Struct, frozen=True, gc=False):
    """How the columns of one tile are walked.

    Attributes:
        skip: leading columns of the tile that the plane leaves out.
        lead, trail: zero taps before and after the kernel's own.
        pad: ``Plane.pad_left``.
        first: first column of the frame that is an output.
    """

    skip: int
    lead: int
    trail: int
    pad: int
    first: int


class TileColumns(msgspec.Struct, frozen=True, gc=False):
    """The columns of one tile: ``begin`` and ``width`` of the input that is there, ``pitch`` elements between
    rows of a phase plane, and the output range [start, start + extent)."""

    begin: int
    width: int
    pitch: int
    start: int
    extent: int


def fit_columns(axis: Axis, tile: TileColumns, lead: int, trail: int) -> ColumnFit | None:
    """The cheapest walk of a tile's columns with at most ``lead`` and ``trail`` zero taps, or None.

    Args:
        axis: the column axis, of stride 1 or 2 (fold larger strides first).
        tile: what lies in LRAM and what is wanted, in units of the axis.
        lead, trail: zero taps that the packed weights provide.
    """
    border = axis.pad + tile.begin - tile.start * axis.stride
    extensions = sorted(((a, b) for a in range(lead + 1) for b in range(trail + 1)), key=sum)
    for a, b in extensions:
        for skip in _skips(border, axis):
            for fit in _candidates(axis, border + skip, skip, a, b):
                if _fits(axis, tile, fit):
                    return fit
    return None


def _skips(border: int, axis: Axis) -> Iterator[int]:
    """Numbers of leading columns worth leaving out: all that nothing reads, or a few less."""
    unread = max(0, -border)
    fewest = max(0, unread - axis.reach - axis.stride)
    return iter(range(unread, fewest - 1, -1))


def _candidates(axis: Axis, border: int, skip: int, lead: int, trail: int) -> Iterator[ColumnFit]:
    kernel = axis.kernel + lead + trail
    for pad in sorted({0, axis.dilation * ((kernel - 1) // 2), axis.dilation * (kernel // 2)}):
        distance = pad - border - axis.dilation * lead
        if distance >= 0 and distance % axis.stride == 0:
            yield ColumnFit(skip, lead, trail, pad, distance // axis.stride)


def _fits(axis: Axis, tile: TileColumns, fit: ColumnFit) -> bool:
    width = tile.width - fit.skip
    kernel = axis.kernel + fit.lead + fit.trail
    columns = fit.first + tile.extent
    last = (columns - 1) * axis.stride + fit.lead * axis.dilation + axis.reach - fit.pad
    reads_right_border = last >= width
    bordered = fit.pad > 0 or kernel <= 2
    if reads_right_border:
        return bordered and columns <= math.ceil(width / axis.stride)
    return columns <= tile.pitch


@functools.lru_cache(maxsize=4096)
def whole_fit(axis: Axis, zero_taps: bool) -> ColumnFit | None:
    """The walk of all columns at once, or None when the border cannot be expressed.

    Args:
        axis: the column axis, of stride 1 or 2.
        zero_taps: whether the kernel may grow by zero taps (convolutions may, pools may not).
    """
    most = 2 * (abs(axis.pad) // axis.dilation) + axis.stride + 2 if zero_taps else 0
    for total in range(most + 1):
        fit = fit_columns(axis, _tile(axis, 0, axis.out), min(total, axis.stride), total)
        if fit is not None:
            return fit
    return None


@functools.lru_cache(maxsize=4096)
def columns_divide(axis: Axis, lead: int, trail: int) -> bool:
    """Whether every column range can be a tile with these zero taps: all left parts, all right parts and
    all single columns fit."""
    ranges = [(0, cut) for cut in range(1, axis.out)]
    ranges += [(cut, axis.out - cut) for cut in range(1, axis.out)]
    ranges += [(cut, 1) for cut in range(axis.out)]
    return all(fit_columns(axis, _tile(axis, start, extent), lead, trail) for start, extent in ranges)


def _tile(axis: Axis, start: int, extent: int) -> TileColumns:
    begin, width = axis.input_span(start, extent)
    return TileColumns(begin, width, math.ceil(width / axis.stride), start, extent)
