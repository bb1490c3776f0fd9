"""The analytic cost of a decision: cycles, bytes and LRAM demand of one node, in closed form.

A node is a pipeline of three stages, transfers in, slices, transfers out, that work on different tiles at
the same time when operands are double buffered.  Its time is that of the busiest stage plus what the other
two need to fill and to drain; without double buffering the stages follow one another.

Among its neighbours a node costs less than alone: constants and programs do not wait for the node before, so where
LRAM has room for both some of them are loaded beside it.  The search compares decisions by that cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.node_model import NodeModel, Residency
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.traffic import Traffic

FEWER_TILES = 40
"""Cycles that the search gives up to have one tile less: smaller programs, faster compilation."""
CONTENTION = 0.25
"""How much of the time counts that transfers would add if both directions shared one channel's bandwidth: the machine
may or may not let them, so of two equally fast decisions the one that moves less is better, and a little slower too."""


def rank_of(cycles: Any, tiles: Any, transfers: Any) -> Any:
    """What the search minimises: cycles, a little more for every tile and for transfers that only just hide.

    Args:
        cycles: with full bandwidth for each direction.
        tiles: number of tiles.
        transfers: cycles of the transfers of both directions, one after the other.
    """
    return cycles + FEWER_TILES * tiles + CONTENTION * np.maximum(0.0, transfers - cycles)


EARLY_SHARE = 0.5
"""How much of what can be loaded beside the node before is taken to be: that node needs the channel as well."""


@dataclass(frozen=True)
class CostWeights:
    """Constants of the model that no descriptor gives; fitted against simulator runs.

    Attributes:
        nss_bytes_a_start: sequencer code fetched for every engine start.
        tile_cycles: sequencer time a tile that nothing hides.
        run_bytes: what a cut row costs beyond its bytes; keeps rows whole where it makes no difference.
    """

    nss_bytes_a_start: float = 20.0
    tile_cycles: float = 4.0
    run_bytes: float = 2.0


@dataclass(frozen=True)
class Cost:
    """Estimated cost of a node: cycles alone and among its neighbours, busy cycles of each stage, bytes, LRAM demand,
    tiles."""

    cycles: float
    chained: float
    dma_in: float
    dma_out: float
    slices: float
    in_bytes: float
    out_bytes: float
    demand: int
    tiles: int

    @property
    def nbytes(self) -> float:
        """Bytes both ways."""
        return self.in_bytes + self.out_bytes

    @property
    def rank(self) -> tuple[float, float]:
        """What the search minimises (see ``rank_of``), then bytes."""
        return (float(rank_of(self.chained, self.tiles, self.dma_in + self.dma_out)), self.nbytes)


def estimate(
    model: NodeModel,
    decision: NodeDecision,
    residency: Residency,
    moved: Traffic,
    weights: CostWeights,
    *,
    exact: bool = True,
) -> Cost:
    """Cycles, bytes and LRAM demand of a decision.

    Args:
        model: the node.
        decision: what to price.
        residency: which operands are resident.
        moved: its data movement (one row).
        weights: constants of the model.
        exact: ask the kernel for the slice cycles of every kind of tile; otherwise only for the full tile,
            and scale the smaller ones at the borders by their size.
    """
    slices = program_bytes = 0.0
    program_peak = parts = 0
    for extent, times in tile_kinds(model.shape, decision.tile):
        if exact:
            tile, share = model.tile_cost(extent, decision.split_axis, residency, decision.portion), 1.0
        else:
            tile = model.rough_cost(decision.tile, decision.split_axis, residency, decision.portion)
            share = math.prod(extent) / math.prod(decision.tile)
        slices += times * tile.cycles * share
        program_bytes += times * tile.program_bytes
        program_peak = max(program_peak, tile.program_peak)
        parts += times * tile.jobs
    stages = stages_of(model.config, moved, weights, slices, program_bytes, parts)
    in_bytes = float(moved.in_bytes[0]) + program_bytes
    out_bytes = float(moved.out_bytes[0])
    word, rate = model.config.lram_word, model.config.dma_bytes_per_cycle
    demand = int(moved.demand(decision.buffers)[0]) + 2 * (-(-program_peak // word) * word)
    cycles = float(stages.alone(decision.buffers)[0])
    chained = float(stages.chained(decision.buffers, np.array([has_neighbours_room(demand, model.config)]))[0])
    return Cost(
        cycles, chained, in_bytes / rate, out_bytes / rate, slices, in_bytes, out_bytes, demand, int(moved.tiles[0])
    )


def has_neighbours_room(demand: Any, config: NpuConfig) -> Any:
    """Whether a node that takes so many bytes of LRAM leaves room to load its constants beside the node before."""
    return demand * 2 <= config.lram_usable


def stages_of(
    config: NpuConfig,
    moved: Traffic,
    weights: CostWeights,
    slices: float,
    program_bytes: float | np.ndarray,
    parts: int | np.ndarray,
) -> Stages:
    """The stages of n tilings.

    Args:
        config: the machine.
        moved: data movement of the tilings.
        weights: constants of the model.
        slices: busy cycles of the slowest slice over all tiles.
        program_bytes: bytes of all slice programs, loaded for every tile.
        parts: slice jobs of all tiles.
    """
    rate, tiles = config.dma_bytes_per_cycle, moved.tiles
    nss_bytes = weights.nss_bytes_a_start * (moved.loads + moved.stores + 2 * parts)
    return Stages(
        dma_in=(moved.in_bytes + program_bytes + nss_bytes + weights.run_bytes * moved.runs) / rate,
        slices=slices,
        dma_out=moved.out_bytes / rate,
        fill=(moved.first_in + program_bytes / tiles) / rate,
        data_fill=moved.first_data / rate,
        drain=moved.last_out / rate,
        steps=tiles,
        overhead=weights.tile_cycles * tiles,
    )


@dataclass(frozen=True)
class Stages:
    """A pipeline of three stages over some steps, for one decision or for n of them at once (arrays).

    Attributes:
        dma_in, slices, dma_out: busy cycles of the stages.
        fill: cycles of the first step's transfers in.
        data_fill: those among them that bring data, not constants or programs.
        drain: cycles of the last step's transfer out.
        steps: tiles or bands.
        overhead: cycles that nothing hides.
    """

    dma_in: float | np.ndarray
    slices: float | np.ndarray
    dma_out: float | np.ndarray
    fill: float | np.ndarray
    data_fill: float | np.ndarray
    drain: float | np.ndarray
    steps: int | np.ndarray
    overhead: float | np.ndarray

    def alone(self, buffers: int) -> np.ndarray:
        """Cycles when nothing runs beside the pipeline; 2 buffers overlap the stages, 1 does not."""
        return self._cycles(buffers, 0.0)

    def chained(self, buffers: int, room: np.ndarray | bool) -> np.ndarray:
        """Cycles after another pipeline; with ``room``, part of the first step's constants is loaded beside it."""
        return self._cycles(buffers, np.where(room, EARLY_SHARE * (self.fill - self.data_fill), 0.0))

    def _cycles(self, buffers: int, early: float | np.ndarray) -> np.ndarray:
        """Cycles when ``early`` cycles of the transfers in have passed before."""
        if buffers == 1:
            stages = self.dma_in - early + self.slices + self.dma_out
        else:
            one = self.slices / self.steps
            last_load = self.dma_in - early + one + self.drain
            stages = np.maximum(last_load, self.fill - early + np.maximum(self.slices + self.drain, one + self.dma_out))
        return np.maximum(stages, self.dma_in) + self.overhead


def tile_kinds(shape: Sequence[int], tile: Sequence[int]) -> list[tuple[tuple[int, ...], int]]:
    """The different tile extents of a tiling (full and remainder along every axis) and how often each occurs."""
    kinds = []
    for extent, size in zip(shape, tile, strict=True):
        full, rest = divmod(extent, size)
        kinds.append([(size, full)] * (full > 0) + [(rest, 1)] * (rest > 0))
    combined = []
    for choice in itertools.product(*kinds):
        combined.append((tuple(size for size, _ in choice), math.prod(times for _, times in choice)))
    return combined
