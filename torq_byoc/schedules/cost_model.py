"""The analytic cost of a decision: cycles, bytes and LRAM demand of one node, in closed form.

A node is a pipeline of three stages, transfers in, slices, transfers out, that work on different tiles at
the same time when operands are double buffered.  Its time is that of the busiest stage plus what the other
two need to fill and to drain; without double buffering the stages follow one another.
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
    """Estimated cost of a node: total cycles, busy cycles of each stage, bytes, LRAM demand, tiles."""

    cycles: float
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
        return (float(rank_of(self.cycles, self.tiles, self.dma_in + self.dma_out)), self.nbytes)


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
    cycles = float(pipeline(model.config, moved, weights, decision.buffers, slices, program_bytes, parts)[0])
    in_bytes = float(moved.in_bytes[0]) + program_bytes
    out_bytes = float(moved.out_bytes[0])
    word, rate = model.config.lram_word, model.config.dma_bytes_per_cycle
    demand = int(moved.demand(decision.buffers)[0]) + 2 * (-(-program_peak // word) * word)
    return Cost(cycles, in_bytes / rate, out_bytes / rate, slices, in_bytes, out_bytes, demand, int(moved.tiles[0]))


def pipeline(
    config: NpuConfig,
    moved: Traffic,
    weights: CostWeights,
    buffers: int,
    slices: float,
    program_bytes: float | np.ndarray,
    parts: int | np.ndarray,
) -> np.ndarray:
    """Cycles of n tilings.

    Args:
        config: the machine.
        moved: data movement of the tilings.
        weights: constants of the model.
        buffers: 2 overlaps the stages, 1 does not.
        slices: busy cycles of the slowest slice over all tiles.
        program_bytes: bytes of all slice programs, loaded for every tile.
        parts: slice jobs of all tiles.
    """
    rate, tiles = config.dma_bytes_per_cycle, moved.tiles
    nss_bytes = weights.nss_bytes_a_start * (moved.loads + moved.stores + 2 * parts)
    dma_in = (moved.in_bytes + program_bytes + nss_bytes + weights.run_bytes * moved.runs) / rate
    dma_out = moved.out_bytes / rate
    fill, drain = (moved.first_in + program_bytes / tiles) / rate, moved.last_out / rate
    return overlapped(dma_in, slices, dma_out, fill, drain, tiles, buffers) + weights.tile_cycles * tiles


def overlapped(
    dma_in: float | np.ndarray,
    slices: float | np.ndarray,
    dma_out: float | np.ndarray,
    fill: float | np.ndarray,
    drain: float | np.ndarray,
    steps: int | np.ndarray,
    buffers: int,
) -> np.ndarray:
    """Cycles of a pipeline of three stages over so many steps.

    Args:
        dma_in, slices, dma_out: busy cycles of the stages.
        fill: cycles of the first step's transfers in.
        drain: cycles of the last step's transfer out.
        steps: tiles or bands.
        buffers: 2 overlaps the stages, 1 does not.
    """
    serial = dma_in + slices + dma_out
    if buffers == 1:
        return np.asarray(serial)
    one = slices / steps
    together = np.maximum(np.maximum(dma_in + one + drain, fill + slices + drain), fill + one + dma_out)
    return np.where(np.equal(steps, 1), serial, together)


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
