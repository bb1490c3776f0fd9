"""Rules about one descriptor: its fields, its share of a bus, and that it walks the nest it belongs to.

The dims of a loop form a mixed-radix count of its iterations: each dim's count is the number of its steps
in the next coarser one, and all of them move the address by the same bytes an iteration.  A descriptor
that keeps this has one meaning, whether read dim by dim or loop by loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torq_byoc.npu_model.config import NdlLimits, NpuConfig
from torq_byoc.npu_model.encoding_ndl import MEMORY_AGENTS
from torq_byoc.npu_model.footprint import element_bytes, loop_strides, planar_loops
from torq_byoc.npu_model.isa import Agent, DimKind, Ndl, NdlDim, Op1, OutputWindow, Role, SliceTask

_FULL_WALK = frozenset({Agent.REF, Agent.CEDR, Agent.CEWR, Agent.CEPW, Agent.CEPR})
_REPEATING = frozenset({Agent.CEDR, Agent.CEWR, Agent.CEPW})
_LOW, _HIGH, _WALK = DimKind.L, DimKind.H, DimKind.S


class Nest:
    """What the rules need to know of a task's loops, worked out once for all its descriptors."""

    def __init__(self, task: SliceTask) -> None:
        self.task = task
        self.extents = [loop.extent for loop in task.loops]
        self.units = [_unit(task, loop.role) for loop in task.loops]
        self.steps = math.prod(-(-extent // unit) for extent, unit in zip(self.extents, self.units, strict=True))
        self.planar = planar_loops(task)
        self.lane = self.planar["lane"]
        self.in_blocks = task.alu is not None and task.alu.op1 is Op1.CARRY
        self.walked: dict[tuple[int, bool], int] = {}
        """Cycles of register descriptors that were looked at, by the identity of their dims (most share theirs), and
        whether an agent that repeats walked them."""

    def logic_loops(self, ndl: Ndl) -> frozenset[int]:
        """Loops whose addresses come from plane or window logic, not from strides."""
        if ndl.agent is Agent.DEDR and self.task.plane:
            return frozenset(self.planar.values())
        if ndl.agent is Agent.DEQW and self.task.window:
            return frozenset({self.lane})
        return frozenset()


def ndl_problems(nest: Nest, ndl: Ndl, config: NpuConfig) -> list[str]:
    """Everything about a descriptor that the machine cannot express or that contradicts its nest."""
    agent, walk = ndl.agent, (id(ndl.dims), ndl.agent in _REPEATING)
    if agent in MEMORY_AGENTS:
        return _fields(ndl, config.limits) or [*_memory_walk(nest, ndl), *_bus(nest, ndl, config)]
    known = not ndl.base and walk in nest.walked
    problems = [] if known else _fields(ndl, config.limits)
    if problems:
        return problems
    cycles = nest.walked[walk] if known else ndl.cycles()
    if agent in _FULL_WALK and cycles != nest.steps:
        problems.append(f"{cycles} steps in a nest of {nest.steps}")
    if not known:
        nest.walked[walk] = cycles
        for loop, dims in _by_loop(ndl).items():
            problems += _mixed_radix(nest, loop, dims, moves=False, held=False)
    return problems


def _unit(task: SliceTask, role: Role) -> int:
    """Iterations of a loop that one cycle does."""
    return task.vector if role is Role.LANE else task.weights if role is Role.GROUP else 1


def _fields(ndl: Ndl, limits: NdlLimits) -> list[str]:
    problems = []
    if len(ndl.dims) > limits.max_dims:
        problems.append(f"{len(ndl.dims)} dims, at most {limits.max_dims}")
    if not 0 <= ndl.base < 1 << limits.address_bits:
        problems.append(f"base {ndl.base:#x}, {limits.address_bits} bits")
    most = min(limits.max_count, limits.max_repeat) if ndl.agent in _REPEATING else limits.max_count
    half = 1 << (limits.stride_bits - 1)
    high = 0
    for dim in ndl.dims:
        kind = dim.kind
        high += kind is _HIGH
        if not 1 <= dim.count <= (limits.max_s_count if kind is _WALK else most):
            problems.append(f"a {kind.name} dim of count {dim.count}")
        if not -half <= dim.stride < half:
            problems.append(f"a stride of {dim.stride}, {limits.stride_bits} bits signed")
        if dim.step < 1:
            problems.append(f"a dim of step {dim.step}")
        if kind is _WALK and ndl.agent is not Agent.DEQW:
            problems.append("a dim of type S, which only DEQW has")
    if high > limits.max_h_dims:
        problems.append(f"{high} dims of type H, at most {limits.max_h_dims}")
    return problems


def _by_loop(ndl: Ndl) -> dict[int, list[NdlDim]]:
    """The dims that count each loop, outermost first, without the plane walk of type S."""
    found: dict[int, list[NdlDim]] = {}
    for dim in ndl.dims:
        if dim.kind is not _WALK:
            found.setdefault(dim.loop, []).append(dim)
    return found


def _memory_walk(nest: Nest, ndl: Ndl) -> Iterator[str]:
    strides = loop_strides(ndl, len(nest.extents))
    logic = nest.logic_loops(ndl)
    by_loop = _by_loop(ndl)
    for loop in logic.difference(by_loop):
        if nest.extents[loop] > 1:
            yield f"no dim walks loop {loop}, which moves it"
    for loop, dims in by_loop.items():
        stride = strides[loop]
        moves = loop in logic or stride != 0
        yield from _mixed_radix(nest, loop, dims, moves=moves, held=not moves)
        if loop in logic:
            continue
        if stride and dims[-1].step != 1:
            yield f"loop {loop} has no dim of step 1"
        if any(dim.stride != stride * dim.step for dim in dims):
            yield f"the dims of loop {loop} disagree about its stride of {stride}"
    if nest.task.window and ndl.agent is Agent.DEQW:
        yield from _window_dims(nest, nest.task.window, ndl)


def _mixed_radix(nest: Nest, loop: int, dims: list[NdlDim], *, moves: bool, held: bool) -> list[str]:
    """Counts that do not fit together; an operand ``held`` for a whole loop repeats one element on its lanes."""
    extent, unit = nest.extents[loop], nest.units[loop]
    problems = []
    room: int | None = None
    for dim in dims:
        if held and dim.kind is _LOW:
            continue
        step = dim.step
        if room is None:
            within = unit > 1 and step != unit
            if within and moves and extent > unit:
                problems.append(f"no dim walks the {-(-extent // unit)} steps of loop {loop}")
            room = unit if within else extent
        expected = -(-room // step)
        if dim.count != expected:
            problems.append(f"a dim of loop {loop} counts {dim.count} steps of {step}, expected {expected}")
        room = unit if step == unit else min(room, step)  # lanes past the end count as well
    return problems


def _window_dims(nest: Nest, window: OutputWindow, ndl: Ndl) -> Iterator[str]:
    lane = nest.lane
    rows = -(-nest.extents[lane] // window.frame_width)
    walks = [(dim.loop, dim.count, dim.stride) for dim in ndl.dims if dim.kind is _WALK]
    if walks != [(lane, rows, window.row_stride), (lane, window.columns, window.column_stride)]:
        yield f"S dims {walks} for a window of {rows} x {window.columns}"


def _bus(nest: Nest, ndl: Ndl, config: NpuConfig) -> Iterator[str]:
    """What one cycle of a memory agent moves, against its bus and its independent addresses."""
    size = element_bytes(ndl)
    lane = nest.lane
    inside = [dim for dim in ndl.dims if dim.kind is _LOW]
    lanes = math.prod(dim.count for dim in inside if dim.loop == lane)
    members = math.prod(dim.count for dim in inside if dim.loop != lane)
    strides = [abs(dim.stride) for dim in inside if dim.loop == lane]
    apart = bool(strides) and strides[-1] not in (0, size)
    if nest.in_blocks:
        yield from _block_bus(nest, ndl, config)
        return
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


def _block_bus(nest: Nest, ndl: Ndl, config: NpuConfig) -> Iterator[str]:
    """The same for a block: whole runs from few addresses, along the lanes for DEDR and along the group for DEQW."""
    size, reads = ndl.dtype.size, ndl.agent is Agent.DEDR
    inside = [dim for dim in ndl.dims if dim.kind is _LOW]
    runs = [dim for dim in inside if (dim.loop == nest.lane) == reads]
    if any(dim.stride != size for dim in runs):
        yield "a block whose runs are not contiguous"
    length = math.prod(dim.count for dim in runs)
    addresses = math.prod(dim.count for dim in inside) // length
    most = config.limits.gather_groups if reads else config.limits.scatter_addresses
    if addresses > most:
        yield f"{addresses} addresses a cycle, at most {most}"
    bus = config.data_vector if reads else config.result_bus
    if addresses * length * size > bus:
        yield f"{addresses * length * size} bytes a cycle, at most {bus}"
