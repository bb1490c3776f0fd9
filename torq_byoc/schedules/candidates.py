"""Which decisions are worth pricing: tile extents an axis, loop orders, slice splits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

from torq_byoc.schedules.tiles import tile_counts

_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
_FEW_STEPS = (1, 2, 3, 4, 6, 8)
"""Smallest tiles, in steps: what is left when one step of an operand is a good part of the LRAM."""
_PORTIONS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Numbers of portions that a reduction axis is divided into."""
MAX_TILINGS = 400
"""Tilings priced a node; longer lists are thinned axis by axis, ends kept."""
MAX_TILES = 4096
"""Tilings with more tiles than this are kept only when nothing else is legal."""
STEP_LIMITS = (MAX_TILES, 4 * MAX_TILES, 16 * MAX_TILES)
"""Most tiles, or portions of all tiles: the next limit counts when nothing within the one before fits the memory."""


def tilings(
    shape: Sequence[int], steps: Sequence[int], limit: int = MAX_TILINGS, most: int = MAX_TILES
) -> list[tuple[int, ...]]:
    """Tile extents of all axes, combined; at most ``most`` tiles each where any legal tiling has so few."""
    lists = [axis_extents(extent, step) for extent, step in zip(shape, steps, strict=True)]
    while math.prod(len(values) for values in lists) > limit:
        longest = max(range(len(lists)), key=lambda axis: (len(lists[axis]), axis))
        if len(lists[longest]) <= 2:
            break
        lists[longest] = _thin(lists[longest])
    combined = list(itertools.product(*lists))
    few = [tile for tile in combined if math.prod(tile_counts(shape, tile)) <= most]
    return few or combined


def axis_extents(extent: int, step: int) -> list[int]:
    """Balanced tile extents of one axis, largest first, in multiples of ``step``; 0 never cuts."""
    if step == 0 or extent <= step:
        return [extent]
    values = {min(extent, step * math.ceil(extent / count / step)) for count in _COUNTS}
    return sorted(values | {step * few for few in _FEW_STEPS if step * few < extent}, reverse=True)


def portions(reduction: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Extents of a portion of a reduction, the largest first: one axis is cut, the axes outside it one by one.

    Only divisions into at most ``most`` portions.
    """
    found = []
    for axis, extent in enumerate(reduction):
        sizes = sorted({math.ceil(extent / count) for count in _PORTIONS}, reverse=True)
        found += [(*(1,) * axis, size, *reduction[axis + 1 :]) for size in sizes if size < extent]
    return [portion for portion in found if math.prod(tile_counts(reduction, portion)) <= most]


def carried_tiles(
    shape: Sequence[int], steps: Sequence[int], boxes: Sequence[Sequence[int]], slices: int
) -> list[tuple[int, ...]]:
    """Tiles whose sums fit the slices' PRAM: each box on one slice, and one a slice side by side."""
    found: list[tuple[int, ...]] = []
    for box in boxes:
        clipped = tuple(min(size, extent) for size, extent in zip(box, shape, strict=True))
        wide = [axis for axis, size in enumerate(clipped) if steps[axis] and size < shape[axis]] if slices > 1 else []
        found += [
            tuple(min(size * slices, shape[a]) if a == axis else size for a, size in enumerate(clipped))
            for axis in wide
        ]
        found.append(clipped)
    return list(dict.fromkeys(found))


def orders(counts: Sequence[int], moves: Sequence[Hashable]) -> list[tuple[int, ...]]:
    """Loop orders that differ in what is loaded again.

    Args:
        counts: tiles along every axis; axes that are not cut stand innermost.
        moves: for every axis, which operands change along it; axes that move the same operands keep
            their natural order among themselves, since swapping them changes nothing.
    """
    cut = [axis for axis, count in enumerate(counts) if count > 1]
    rest = tuple(axis for axis, count in enumerate(counts) if count == 1)
    found = []
    for order in itertools.permutations(cut):
        ascending = all(a < b for a, b in itertools.combinations(order, 2) if moves[a] == moves[b])
        if ascending:
            found.append(order + rest)
    return found


def split_axes(tile: Sequence[int], steps: Sequence[int], slices: int, most: int = 2) -> list[int | None]:
    """Axes along which a tile divides between the slices, most even first; [None] when there is none."""
    if slices == 1:
        return [None]
    balanced = []
    for axis, (extent, step) in enumerate(zip(tile, steps, strict=True)):
        if step and extent > step:
            units = math.ceil(extent / step)
            balanced.append((math.ceil(units / min(slices, units)) * step / extent, axis))
    return [axis for _, axis in sorted(balanced)[:most]] or [None]


def _thin(values: list[int]) -> list[int]:
    """Every other value, first and last kept."""
    return values[:-1][::2] + values[-1:]
