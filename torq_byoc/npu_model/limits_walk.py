"""Rules about one descriptor: its fields, its share of a bus, and that it walks the nest it belongs to.

The dims of a loop form a mixed-radix count of its iterations: each dim's count is the number of its steps
in the next coarser one, and all of them move the address by the same bytes an iteration.  A descriptor
that keeps this has one meaning, whether read dim by dim or loop by loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import MEMORY_AGENTS
from torq_byoc.npu_model.footprint import element_bytes, loop_strides, planar_loops
from torq_byoc.npu_model.isa import Agent, DimKind, Ndl, NdlDim, Role, SliceTask

_FULL_WALK = {Agent.REF, Agent.CEDR, Agent.CEWR, Agent.CEPW, Agent.CEPR}
_REPEATING = {Agent.CEDR, Agent.CEWR, Agent.CEPW}


def ndl_problems(task: SliceTask, ndl: Ndl, config: NpuConfig) -> list[str]:
    """Everything about a descriptor that the machine cannot express or that contradicts its nest."""
    problems = list(_fields(ndl, config))
    if problems:
        return problems
    problems += _walk(task, ndl)
    problems += _bus(task, ndl, config)
    return problems


def nest_steps(task: SliceTask) -> int:
    """Cycles of the whole nest: iterations of every loop, lanes and group members of a cycle together."""
    return math.prod(math.ceil(loop.extent / _unit(task, position)) for position, loop in enumerate(task.loops))


def _unit(task: SliceTask, position: int) -> int:
    """Iterations of a loop that one cycle does."""
    role = task.loops[position].role
    return task.vector if role is Role.LANE else task.weights if role is Role.GROUP else 1


def _fields(ndl: Ndl, config: NpuConfig) -> Iterator[str]:
    limits = config.limits
    if len(ndl.dims) > limits.max_dims:
        yield f"{len(ndl.dims)} dims, at most {limits.max_dims}"
    high = sum(dim.kind is DimKind.H for dim in ndl.dims)
    if high > limits.max_h_dims:
        yield f"{high} dims of type H, at most {limits.max_h_dims}"
    if not 0 <= ndl.base < 1 << limits.address_bits:
        yield f"base {ndl.base:#x}, {limits.address_bits} bits"
    most = min(limits.max_count, limits.max_repeat if ndl.agent in _REPEATING else limits.max_count)
    half = 1 << (limits.stride_bits - 1)
    for dim in ndl.dims:
        if not 1 <= dim.count <= (limits.max_s_count if dim.kind is DimKind.S else most):
            yield f"a {dim.kind.name} dim of count {dim.count}"
        if not -half <= dim.stride < half:
            yield f"a stride of {dim.stride}, {limits.stride_bits} bits signed"
        if dim.step < 1:
            yield f"a dim of step {dim.step}"
        if dim.kind is DimKind.S and ndl.agent is not Agent.DEQW:
            yield "a dim of type S, which only DEQW has"


def _walk(task: SliceTask, ndl: Ndl) -> Iterator[str]:
    if ndl.agent in _FULL_WALK and ndl.cycles() != nest_steps(task):
        yield f"{ndl.cycles()} steps in a nest of {nest_steps(task)}"
    strides = loop_strides(ndl, len(task.loops))
    planar = _logic_loops(task, ndl)
    by_loop: dict[int, list[NdlDim]] = {}
    for dim in ndl.dims:
        if dim.kind is not DimKind.S:
            by_loop.setdefault(dim.loop, []).append(dim)
    for position, loop in enumerate(task.loops):
        dims = by_loop.get(position, [])
        moves = position in planar or strides[position] != 0
        if moves and not dims and loop.extent > 1:
            yield f"no dim walks loop {position}, which moves it"
        held = ndl.agent in MEMORY_AGENTS and not moves
        yield from _mixed_radix(task, position, dims, moves, held)
        if ndl.agent in MEMORY_AGENTS and position not in planar and dims:
            if strides[position] and dims[-1].step != 1:
                yield f"loop {position} has no dim of step 1"
            if any(dim.stride != strides[position] * dim.step for dim in dims):
                yield f"the dims of loop {position} disagree about its stride of {strides[position]}"
    if task.window and ndl.agent is Agent.DEQW:
        yield from _window_dims(task, ndl)


def _logic_loops(task: SliceTask, ndl: Ndl) -> set[int]:
    """Loops whose addresses come from plane or window logic, not from strides."""
    planar = planar_loops(task)
    if ndl.agent is Agent.DEDR and task.plane:
        return set(planar.values())
    if ndl.agent is Agent.DEQW and task.window:
        return {planar["lane"]}
    return set()


def _mixed_radix(task: SliceTask, position: int, dims: list[NdlDim], moves: bool, held: bool) -> Iterator[str]:
    """Counts that do not fit together; an operand ``held`` for a whole loop repeats one element on its lanes."""
    extent, unit = task.loops[position].extent, _unit(task, position)
    room: int | None = None
    for dim in dims:
        if held and dim.kind is DimKind.L:
            continue
        if room is None:
            within = unit > 1 and dim.step != unit
            if within and moves and extent > unit:
                yield f"no dim walks the {math.ceil(extent / unit)} steps of loop {position}"
            room = unit if within else extent
        expected = math.ceil(room / dim.step)
        if dim.count != expected:
            yield f"a dim of loop {position} counts {dim.count} steps of {dim.step}, expected {expected}"
        room = unit if dim.step == unit else min(room, dim.step)  # lanes past the end count as well


def _window_dims(task: SliceTask, ndl: Ndl) -> Iterator[str]:
    window = task.window
    if window is None:
        return
    lane = planar_loops(task)["lane"]
    rows = math.ceil(task.loops[lane].extent / window.frame_width)
    walks = [(dim.loop, dim.count, dim.stride) for dim in ndl.dims if dim.kind is DimKind.S]
    if walks != [(lane, rows, window.row_stride), (lane, window.columns, window.column_stride)]:
        yield f"S dims {walks} for a window of {rows} x {window.columns}"


def _bus(task: SliceTask, ndl: Ndl, config: NpuConfig) -> Iterator[str]:
    """What one cycle of a memory agent moves, against its bus and its independent addresses."""
    if ndl.agent not in MEMORY_AGENTS:
        return
    size = element_bytes(ndl)
    lane = planar_loops(task)["lane"]
    inside = [dim for dim in ndl.dims if dim.kind is DimKind.L]
    lanes = math.prod(dim.count for dim in inside if dim.loop == lane)
    members = math.prod(dim.count for dim in inside if dim.loop != lane)
    strides = [abs(dim.stride) for dim in inside if dim.loop == lane]
    apart = bool(strides) and strides[-1] not in (0, size)
    if ndl.agent is Agent.DEDR:
        if apart and lanes > config.limits.gather_groups:
            yield f"{lanes} addresses a cycle, at most {config.limits.gather_groups}"
        moved, bus = (lanes + members - 1) * size, config.data_bus
        if members > config.limits.max_taps_per_load:
            yield f"{members} taps a load, at most {config.limits.max_taps_per_load}"
    elif ndl.agent is Agent.DEQW:
        if apart and lanes > config.limits.scatter_addresses:
            yield f"{lanes} addresses a cycle, at most {config.limits.scatter_addresses}"
        moved, bus = lanes * members * size, config.result_bus
    elif ndl.agent is Agent.DEWR:
        moved, bus = lanes * members * size, config.weight_bus
    else:
        moved, bus = lanes * members * size, config.bias_bus
    if moved > bus:
        yield f"{moved} bytes a cycle, at most {bus}"
