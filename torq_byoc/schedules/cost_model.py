"""The analytic cost of a decision: cycles, bytes and LRAM demand of one node, in closed form.

A node is a pipeline of three engines, transfers in, slices, transfers out (``flow``), whose steps are its tiles.
Without double buffering all of it is one step.

Two prices follow.  Alone, a node has the LRAM to itself and finds its first block of sequencer code in place; that is
what the simulator counts for it on its own.  Among its neighbours it has the room that the decision asks for, all of
its code is loaded, and constants and programs do not wait for the node before: where LRAM has room for both, some of
them are loaded beside it.  The search compares decisions by that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.flow import Flow, larger
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.slice_costs import SliceCost
from torq_byoc.schedules.tile_flow import StepLoads, Waits, tile_flow
from torq_byoc.schedules.tiles import tile_counts
from torq_byoc.schedules.traffic import Depth, Traffic

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
    return cycles + FEWER_TILES * tiles + CONTENTION * larger(0.0, transfers - cycles)


EARLY_SHARE = 0.5
"""How much of what can be loaded beside the node before is taken to be: that node needs the channel as well."""


HEAVY = 2048
"""Bytes of a slice program that weigh beside those of tiles: tables do, other programs hardly."""


@dataclass(frozen=True)
class CostWeights:
    """What the model does not ask anybody for.

    Attributes:
        transfer_code: sequencer bytes a transfer: a start without strides 14, a task 2, waits 1 or 2
            (``npu_model.encoding_nss``).
        slice_code: sequencer bytes a slice program: a start 10, and a share in task and waits.
        rounding: cycles by which a transfer is longer than its bytes, since it takes whole ones.
    """

    transfer_code: float = 18.0
    slice_code: float = 13.0
    rounding: float = 0.5


class Cost(msgspec.Struct, frozen=True, gc=False):
    """Estimated cost of a node.

    Attributes:
        cycles, chained: alone and among its neighbours.
        dma_in, dma_out, slices: busy cycles of each stage.
        in_bytes, out_bytes: through DMA.
        demand: bytes of LRAM.
        tiles: steps.
        flow: its pipeline with all of its code; an array of one each where the estimate is not exact.
        constants, shares: of its first step, as ``chain.Unit`` has them; 0 and empty where the estimate is not exact.
        along: axis along which its stores move on, as there.
    """

    cycles: float
    chained: float
    dma_in: float
    dma_out: float
    slices: float
    in_bytes: float
    out_bytes: float
    demand: int
    tiles: int
    flow: Flow
    constants: float
    shares: tuple[float, ...]
    along: int

    @property
    def largest(self) -> float:
        """Cycles of the largest transfer among the first step's constants: a node seldom has two large ones."""
        return self.constants

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
    depth: Depth,
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
        depth: which operands have a second buffer.
        exact: ask the kernel for the slice cycles of every kind of tile and let the tiles follow one another in their
            order; otherwise only ask for one kind of tile for every plane (the innermost two axes), scale those with
            fewer of such planes by their size, and take all tiles for alike.
    """
    config = model.config
    rate = config.dma_bytes_per_cycle
    work = _work(model, decision, residency, exact)
    slices = sum(times * share * cost.cycles for cost, times, share in work.values())
    program_bytes = float(sum(times * cost.program_bytes for cost, times, _ in work.values()))
    parts = sum(times * cost.jobs for cost, times, _ in work.values())
    programs = programs_demand(max(cost.program_peak for cost, _, _ in work.values()), config)
    demand = int(moved.demand(depth)[0]) + programs
    flow, constants = flow_of(config, moved, weights, slices, program_bytes, parts, depth)
    alone = flow
    if exact:
        code = float(_code(moved, weights, parts)[0])
        costs = {extent: cost for extent, (cost, _, _) in work.items()}
        depths = (Depth.ALL, Depth.MOVING, depth)
        deepest = next((d for d in depths if int(moved.demand(d)[0]) + programs <= config.lram_usable), depth)
        flow = _exactly(model, decision, moved, weights, costs, code, depth)
        later = max(0.0, code - config.nss_block_bytes)
        loaded = _programs_loaded(costs, moved, deepest, config)
        alone = _exactly(model, decision, moved, weights, costs, later, deepest, loaded)
    early = loaded_early(constants, demand, config)
    in_bytes, out_bytes = float(moved.in_bytes[0]) + program_bytes, float(moved.out_bytes[0])
    return Cost(
        float(np.asarray(alone.through).item()),
        float(np.asarray(flow.after(early)).item()),
        in_bytes / rate,
        out_bytes / rate,
        slices,
        in_bytes,
        out_bytes,
        demand,
        int(moved.tiles[0]),
        flow,
        float(constants[0]) if exact else 0.0,
        _first_shares(model, decision, residency, moved) if exact else (),
        next((axis for axis in decision.order if decision.tile[axis] < model.shape[axis]), -1),
    )


def _first_shares(model: NodeModel, decision: NodeDecision, residency: Residency, moved: Traffic) -> tuple[float, ...]:
    """Of the largest tensor that comes from XRAM, what the first tile needs along every axis; of a portion of the
    reduction only how much."""
    streamed = [s for s in model.streams if s.position is not None and not residency.inputs[s.position]]
    largest = max(streamed, key=lambda stream: stream.nbytes, default=None)
    if largest is None or largest.position is None:
        return ()
    if decision.portion:
        return (float(moved.first_data[0]) / max(1.0, sum(stream.nbytes for stream in streamed)),)
    region = model.input_region(largest.position, Region((0,) * len(model.shape), decision.tile))
    shape = model.graph.tensors[model.node.inputs[model.inputs[largest.position]]].shape
    return shares_of(region, shape)


def shares_of(region: Region, shape: Sequence[int]) -> tuple[float, ...]:
    """What a box is of a tensor along every axis."""
    return tuple(part / max(1, whole) for part, whole in zip(region.extent, shape, strict=True))


def _work(
    model: NodeModel, decision: NodeDecision, residency: Residency, exact: bool
) -> dict[tuple[int, ...], tuple[SliceCost, int, float]]:
    """For every kind of tile, by its extents: a cost, how many there are, and by what the cost's cycles scale."""
    axis, portion = decision.split_axis, decision.portion
    kinds = tile_kinds(model.shape, decision.tile)
    if exact:
        return {tile.extent: (model.tile_cost(tile, axis, residency, portion), times, 1.0) for tile, times in kinds}
    full = kinds[0][0]
    work = {}
    for tile, times in kinds:
        like = Region((*full.start[:-2], *tile.start[-2:]), (*full.extent[:-2], *tile.extent[-2:]))
        cost = model.slices.rough_cost(like, axis, residency, portion)
        work[tile.extent] = (cost, times, tile.size / like.size)
    return work


def _exactly(
    model: NodeModel,
    decision: NodeDecision,
    moved: Traffic,
    weights: CostWeights,
    work: Mapping[tuple[int, ...], SliceCost],
    code: float,
    depth: Depth,
    programs: float = 1.0,
) -> Flow:
    """The pipeline of all tiles in their order, of which that share load programs."""
    rate, steps = model.config.dma_bytes_per_cycle, int(moved.tiles[0])
    counts = tile_counts(model.shape, decision.tile)
    portions = steps // math.prod(counts)
    first, first_in, in_bytes = math.prod(decision.tile), float(moved.first_in[0]), float(moved.in_bytes[0])
    refills, turn, run = int(moved.refills[0]), 0.0, _loops_of_a_run(counts, decision.order, moved)
    if run:
        turn = float(moved.refilled[0]) / refills
    rest = in_bytes - first_in - turn * refills
    element = rest / (portions * math.prod(model.shape) - first) if steps > 1 else 0.0
    fixed = float(_extra(moved, model.config, weights)[0])
    loads = StepLoads(
        ahead=max(0.0, first_in - turn - element * first) / rate,
        element=element / rate,
        step=(code + fixed) / steps / rate,
        program_byte=programs / rate,
        turn=turn / rate,
        run=run,
    )
    waits = Waits()
    if depth is Depth.MOVING:
        waits = Waits(float(moved.refills[0]) / steps, float(_awaited(moved)[0]) / rate / steps)
    store = model.element / rate if moved.stores[0] else 0.0
    flow = tile_flow(model.shape, decision, work, loads, waits, store, portions)
    return Flow.step(flow.loads, flow.work, flow.stores) if depth is Depth.NONE else flow


def _programs_loaded(
    work: Mapping[tuple[int, ...], SliceCost], moved: Traffic, depth: Depth, config: NpuConfig
) -> float:
    """The share of its tiles that load programs of a node that has the LRAM to itself.

    Where that has room, tiles take the places of those before the last one in turn, and large programs come out equal
    (``share_programs``, ``twins``): the first two tiles load them, and one of every other size.
    """
    steps, heavy = int(moved.tiles[0]), all(cost.program_bytes >= HEAVY * cost.jobs for cost in work.values())
    roomy = int(moved.demand(depth)[0]) * 2 <= config.lram_usable
    return min(1.0, (1 + len(work)) / steps) if heavy and roomy else 1.0


def _loops_of_a_run(counts: Sequence[int], order: Sequence[int], moved: Traffic) -> int:
    """How many of the innermost loops an operand stays for that changes after them; 0 where there is none, or where
    several stay for more and for less."""
    left = int(moved.refills[0]) + 1
    if left == 1:
        return 0
    for outer, axis in enumerate(order):
        if counts[axis] > 1:
            left = left // counts[axis] if left % counts[axis] == 0 else 0
        if left == 1:
            return len(order) - 1 - outer
    return 0


def loaded_early(constants: Any, demand: Any, config: NpuConfig) -> Any:
    """Cycles of a first step's constants and programs that are loaded beside the node before: a share of them where
    what takes so many bytes of LRAM leaves room for that."""
    return EARLY_SHARE * constants * (demand * 2 <= config.lram_usable)


def programs_demand(largest: int, config: NpuConfig) -> int:
    """LRAM bytes of programs: the one that runs and the next one, each as large as the largest."""
    word = config.lram_word
    return 2 * (-(-largest // word) * word)


def flow_of(
    config: NpuConfig,
    moved: Traffic,
    weights: CostWeights,
    slices: float,
    program_bytes: float | np.ndarray,
    parts: int | np.ndarray,
    depth: Depth,
) -> tuple[Flow, np.ndarray]:
    """The pipelines of n tilings whose tiles are taken for alike, and the constants that their first steps load.

    Args:
        config: the machine.
        moved: data movement of the tilings.
        weights: constants of the model.
        slices: busy cycles of the slowest slice over all tiles.
        program_bytes: bytes of all slice programs, loaded for every tile.
        parts: slice jobs of all tiles.
        depth: which operands have a second buffer.  Whenever one without it changes, the transfers wait for the last
            tile that reads it, and the slices for its next part and for what else their next tile needs.

    Returns:
        Flows of arrays; cycles of constants and programs, arrays as well.
    """
    rate, steps = config.dma_bytes_per_cycle, moved.tiles
    extra = _code(moved, weights, parts) + _extra(moved, config, weights)
    loads = (moved.in_bytes + program_bytes + extra) / rate
    stores = moved.out_bytes / rate
    constants = (moved.first_in - moved.first_data + program_bytes / steps) / rate
    work = slices + np.zeros(len(steps))
    if depth is Depth.NONE:
        return Flow.step(loads, work, stores), constants
    if depth is Depth.MOVING:
        loads, work = loads + moved.refills * work / steps, work + _awaited(moved) / rate
    first = (moved.first_in + (program_bytes + extra) / steps) / rate
    return Flow.evenly(loads, work, stores, first, moved.last_out / rate, steps), constants


def _awaited(moved: Traffic) -> np.ndarray:
    """Bytes that the slices wait for whenever an operand without a second buffer changes: its next part, and what else
    their next tile needs."""
    return moved.refilled + moved.refills * (moved.in_bytes - moved.refilled) / moved.tiles


def _code(moved: Traffic, weights: CostWeights, parts: int | np.ndarray) -> np.ndarray:
    """Bytes of sequencer code."""
    transfers = moved.loads + moved.stores + moved.tiles
    return np.asarray(weights.transfer_code * transfers + weights.slice_code * parts)


def _extra(moved: Traffic, config: NpuConfig, weights: CostWeights) -> np.ndarray:
    """Cycles for which transfers in occupy the channel beyond their bytes, as bytes."""
    return weights.rounding * config.dma_bytes_per_cycle * (moved.loads + moved.tiles)


def tile_kinds(shape: Sequence[int], tile: Sequence[int]) -> list[tuple[Region, int]]:
    """The different tile extents of a tiling (full and remainder along every axis) and how often each occurs.

    Each stands where the tiles like it do: the full one in the middle, a remainder at the end.
    """
    kinds = []
    for extent, size in zip(shape, tile, strict=True):
        full, rest = divmod(extent, size)
        kinds.append([(full // 2 * size, size, full)] * (full > 0) + [(full * size, rest, 1)] * (rest > 0))
    combined = []
    for choice in itertools.product(*kinds):
        region = Region(tuple(start for start, _, _ in choice), tuple(size for _, size, _ in choice))
        combined.append((region, math.prod(times for _, _, times in choice)))
    return combined
