"""Data movement of many tilings at once: bytes through DMA and LRAM demand, by the reload rule.

An operand is loaded again when the box a tile reads differs from the one before.  Along a loop nest that
means: loops outside the innermost loop that moves the operand repeat its loads, loops inside do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple

import numpy as np

from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import WHOLE, Residency
from torq_byoc.schedules.tiles import portions_of


class Depth(Enum):
    """Which operands and results have a second buffer, so that their transfers overlap with compute.

    An operand that stays for several tiles takes much memory and is seldom loaded: with one buffer (``MOVING``) the
    slices wait for its next part, and all the others go on as with two.
    """

    ALL = "two for what changes at all"
    MOVING = "two for what changes with every tile"
    NONE = "one buffer each"

    @property
    def buffers(self) -> int:
        """Tiles in flight, as a decision says it."""
        return 1 if self is Depth.NONE else 2


@dataclass(frozen=True)
class Traffic:
    """Data movement of n tilings under one loop order; every field is an array of n.

    Attributes:
        in_bytes, out_bytes: operand and result bytes through DMA, programs not counted.
        first_in, last_out: bytes of the first tile's loads and of the last tile's store.
        first_data: those among the first tile's loads that are no constants.
        loads, stores: transfers, programs not counted.
        tiles: steps of the node: its tiles, or the portions of all tiles.
        refills, refilled: loads of operands that stay for several tiles, the first ones not counted; their bytes.
        single, moving, double: LRAM bytes of operand and output tiles at every ``Depth``; residents and programs not
            counted.
    """

    in_bytes: np.ndarray
    out_bytes: np.ndarray
    first_in: np.ndarray
    first_data: np.ndarray
    last_out: np.ndarray
    loads: np.ndarray
    stores: np.ndarray
    tiles: np.ndarray
    refills: np.ndarray
    refilled: np.ndarray
    single: np.ndarray
    moving: np.ndarray
    double: np.ndarray

    def demand(self, depth: Depth) -> np.ndarray:
        """LRAM bytes at a buffering depth."""
        return {Depth.NONE: self.single, Depth.MOVING: self.moving, Depth.ALL: self.double}[depth]

    def has_refills(self) -> bool:
        """Whether some operand of some tiling stays for several tiles and then changes."""
        return bool(self.refills.any())

    def row(self, index: int) -> Traffic:
        """The traffic of one of the tilings."""
        return Traffic(*(getattr(self, column.name)[index : index + 1] for column in fields(self)))


@dataclass(frozen=True)
class StreamTraffic:
    """One operand under n tilings and one loop order; arrays of n, in bytes."""

    nbytes: np.ndarray
    part: np.ndarray
    first: np.ndarray
    loads: np.ndarray


class _Factors(NamedTuple):
    """What ``Cut`` says of one operand under n tilings, along every axis: arrays of n rows, a column an axis."""

    moves: np.ndarray
    total: np.ndarray
    changed: np.ndarray
    changes: np.ndarray
    largest: np.ndarray
    first: np.ndarray


def tiling_table(model: NodeModel, tiles: tuple[tuple[int, ...], ...], portion: tuple[int, ...] = ()) -> TilingTable:
    """A ``TilingTable``; the same one again whenever a node is asked under another residency."""
    key = (tiles, portion)
    if key not in model.tables:
        model.tables[key] = TilingTable(model, tiles, portion)
    return model.tables[key]


class TilingTable:
    """Tilings of one node with the operand factors of every axis, independent of loop order.

    Args:
        model: the node.
        tiles: tile extents, one row a tiling, one column an output axis.
        portion: extents of a portion of the reduction, in which every tile is computed; empty for none.
    """

    def __init__(self, model: NodeModel, tiles: Sequence[Sequence[int]], portion: Sequence[int] = ()) -> None:
        self.model = model
        self.tiles = np.asarray(tiles, dtype=np.int64).reshape(len(tiles), len(model.shape))
        self.counts = -(-np.asarray(model.shape, dtype=np.int64) // self.tiles)
        self.total = self.counts.prod(axis=1)
        self._factors = [self._stream_factors(stream) for stream in range(len(model.streams))]
        self._portions = len(portions_of(model.reduction, portion)) if portion else 1
        self._terms = [model.portion_cut(stream, portion) if portion else WHOLE for stream in range(len(self._factors))]

    def moves(self) -> list[tuple[bool, ...]]:
        """For every axis, which operands change along it in any of the tilings."""
        axes = range(self.tiles.shape[1])
        return [tuple(bool(factors.moves[:, axis].any()) for factors in self._factors) for axis in axes]

    def traffic(self, order: Sequence[int], residency: Residency) -> Traffic:
        """Data movement under a loop order and a residency."""
        n = len(self.tiles)
        in_bytes, first_in, first_data = np.zeros(n), np.zeros(n), np.zeros(n)
        loads, refills, refilled = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n)
        single, moving, double = (np.zeros(n, dtype=np.int64) for _ in range(3))
        steps = self.total * self._portions
        for index, stream in enumerate(self.model.streams):
            if stream.position is not None and residency.inputs[stream.position]:
                continue
            moved = self.stream(index, order)
            in_bytes += moved.nbytes
            first_in += moved.first
            if stream.position is not None:
                first_data += moved.first
            loads += moved.loads
            part, stays = self._words(moved.part), moved.loads < steps
            refills += np.where(stays, moved.loads - 1, 0)
            refilled += np.where(stays, moved.nbytes - moved.first, 0)
            single += part
            moving += np.where(stays, part, part * np.minimum(2, moved.loads))
            double += part * np.minimum(2, moved.loads)
        out_bytes, last_out, stores = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)
        if not residency.output:
            out_bytes += self.model.output_bytes
            last_out += self._last_tile()
            stores += self.total
            part = self._words(self.tiles.prod(axis=1) * self.model.element)
            single += part
            moving += part * np.minimum(2, self.total)
            double += part * np.minimum(2, self.total)
        columns = (in_bytes, out_bytes, first_in, first_data, last_out, loads, stores, steps, refills, refilled)
        return Traffic(*columns, single, moving, double)

    def stream(self, index: int, order: Sequence[int]) -> StreamTraffic:
        """Loads of one operand under a loop order; the portions of the reduction are its innermost loop."""
        factors = self._factors[index]
        terms = self._terms[index]
        nbytes = np.full(len(self.tiles), float(self.model.streams[index].nbytes))
        part = nbytes * factors.largest.prod(axis=1) * terms.largest
        start = nbytes * factors.first.prod(axis=1) * terms.first
        nbytes *= terms.total
        loads = np.full(len(self.tiles), self._portions if terms.moves else 1, dtype=np.int64)
        inside = np.full(len(self.tiles), terms.moves)
        for axis in reversed(order):
            counts, moves = self.counts[:, axis], factors.moves[:, axis]
            repeated = np.where(moves, factors.total[:, axis], counts)
            nbytes = nbytes * np.where(inside, repeated, factors.changed[:, axis])
            loads = loads * np.where(inside, counts, factors.changes[:, axis])
            inside = inside | moves
        return StreamTraffic(nbytes, part, start, loads)

    def _stream_factors(self, stream: int) -> _Factors:
        columns = []
        for axis in range(self.tiles.shape[1]):
            values, where = np.unique(self.tiles[:, axis], return_inverse=True)
            cuts = [self.model.cut(stream, axis, int(value)) for value in values]
            table = np.array([[getattr(cut, name) for name in _Factors._fields] for cut in cuts], dtype=float)
            columns.append(table[where.reshape(-1)])
        stacked = np.stack(columns, axis=1) if columns else np.ones((len(self.tiles), 0, len(_Factors._fields)))
        found = _Factors(*np.moveaxis(stacked, 2, 0))
        return found._replace(moves=found.moves > 0, changes=found.changes.astype(np.int64))

    def _last_tile(self) -> np.ndarray:
        rest = np.asarray(self.model.shape, dtype=np.int64) - (self.counts - 1) * self.tiles
        return rest.prod(axis=1) * float(self.model.element)

    def _words(self, nbytes: np.ndarray) -> np.ndarray:
        word = self.model.config.lram_word
        return np.ceil((nbytes - 1e-6) / word).astype(np.int64) * word
