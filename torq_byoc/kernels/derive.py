"""From a loop nest to descriptors: each agent's dims follow from the shared loops and its operand's strides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torq_byoc.kernels.limits import COMPARISONS, acts_on_bits
from torq_byoc.kernels.nest import LoopNest, Operand
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActMode, Agent, DimKind, Loop, Ndl, NdlDim, Role, SliceTask, Tag


class Derivation:
    """Derives each agent's dims from the shared nest; one method an agent family."""

    def __init__(self, nest: LoopNest, config: NpuConfig) -> None:
        self.nest = nest
        self.config = config
        self.index = {loop.name: position for position, loop in enumerate(nest.loops)}
        self.extent = {loop.name: loop.extent for loop in nest.loops}
        (self.lane,) = nest.names(Role.LANE)
        self.group = next(iter(nest.names(Role.GROUP)), None)
        self.weight_type = nest.weight.dtype if nest.weight else None
        self.outputs = nest.alu is None or nest.alu.output
        self.act_width = self._act_width()
        self.vector = nest.vector or self._widest_vector()
        self.steps = {self.lane: self.vector}
        if self.group:
            self.steps[self.group] = nest.weights
        self.taken = [
            (loop.name, position, count, step, loop.role is Role.REDUCE)
            for position, loop in enumerate(nest.loops)
            if (count := -(-loop.extent // (step := self.steps.get(loop.name, 1)))) > 1
        ]
        """Loops that take more than one step: name, position, steps, iterations a step, whether one reduces."""
        self.walk = tuple(self._nest_dims(None))
        """The walk of all loops in a register."""

    def _act_width(self) -> int:
        if self.nest.data is None:
            return self.config.act_lanes
        per_item = bool(self.nest.bias and self._stride(self.nest.bias, self.lane))
        return self.config.act_width(
            self.nest.data.dtype, self.weight_type, per_item=per_item, table=self.nest.act.mode is ActMode.TABLE
        )

    def _widest_vector(self) -> int:
        if self.nest.data is None:
            return self.config.result_bus // self.nest.result.dtype.size
        width = self.config.vector_width(self.nest.data.dtype, self.weight_type, self.nest.weights)
        if self.nest.weight and self._stride(self.nest.weight, self.lane):
            width = min(width, self.config.weight_ram // self.nest.weight.dtype.size)
        if self._compares_in_float():
            width = min(width, self.act_width)
        needed = math.ceil(self.extent[self.lane] / self.act_width) * self.act_width
        return min(width, needed)

    def _compares_in_float(self) -> bool:
        """Float comparisons run on all lanes only while ACT passes the bits through (hardware doc 2.3)."""
        nest = self.nest
        if nest.data is None or nest.alu is None or not nest.data.dtype.is_float or nest.alu.op1 not in COMPARISONS:
            return False
        return acts_on_bits(nest.bias is not None, nest.act.clip_min, nest.act.clip_max)

    def task(self) -> SliceTask:
        """The slice task with all its descriptors."""
        nest = self.nest
        ndls = [Ndl(Agent.REF, 0, nest.result.dtype, self.walk)]
        if nest.fill_value is None:
            assert nest.data is not None
            ndls += self._data(nest.data)
            if nest.weight is not None:
                ndls += self._weight(nest.weight)
            if nest.bias is not None and self.outputs:
                ndls += self._bias(nest.bias)
            ndls += self._partials(nest.data.dtype)
        if self.outputs:
            ndls.append(self._result())
        return SliceTask(
            loops=tuple(Loop(loop.tag, loop.extent, loop.role) for loop in nest.loops),
            vector=self.vector,
            weights=nest.weights if self.group else 1,
            ndls=tuple(ndls),
            alu=nest.alu,
            act=nest.act,
            plane=nest.plane,
            window=nest.window,
            table=nest.table,
            fill_value=nest.fill_value,
        )

    def _stride(self, operand: Operand, loop: str | None) -> int:
        return operand.strides.get(loop, 0) if loop else 0

    def _planar_loops(self) -> frozenset[str]:
        """Loops that the plane logic of DEDR moves."""
        if self.nest.plane is None:
            return frozenset()
        kernel = {loop.name for loop in self.nest.loops if loop.tag in (Tag.KERNEL_ROW, Tag.KERNEL_COLUMN)}
        return frozenset(kernel | {self.lane})

    def _nest_dims(self, operand: Operand | None, *, reduce: bool = True) -> list[NdlDim]:
        """The H dims that every agent shares, one a loop that takes more than one step."""
        strides = operand.strides if operand else {}
        return [
            NdlDim(DimKind.H, position, count, strides.get(name, 0) * step, step)
            for name, position, count, step, reduces in self.taken
            if reduce or not reduces
        ]

    def _moving_dims(self, operand: Operand, moved: frozenset[str], *, reduce: bool = True) -> list[NdlDim]:
        """The shared dims less the innermost ones that leave the operand in its register."""
        dims = self._nest_dims(operand, reduce=reduce)
        moved_indices = {self.index[name] for name in moved}
        while dims and dims[-1].stride == 0 and dims[-1].loop not in moved_indices:
            dims.pop()
        return dims

    def _chunk_innermost(self, dims: list[NdlDim], steps: int, stride: int) -> list[NdlDim]:
        """Let one load serve up to ``steps`` iterations of the innermost reduce loop; returns the L dim."""
        if not dims or steps < 2:
            return []
        last = dims[-1]
        if self.nest.loops[last.loop].role is not Role.REDUCE or last.step != 1:
            return []
        steps = min(steps, last.count)
        dims[-1] = NdlDim(DimKind.H, last.loop, math.ceil(last.count / steps), stride * steps, steps)
        return [NdlDim(DimKind.L, last.loop, steps, stride)]

    def _data(self, data: Operand) -> list[Ndl]:
        moved = self._planar_loops()
        dims = self._moving_dims(data, moved)
        size = data.dtype.size
        inside: list[NdlDim] = []
        plane = self.nest.plane
        row_of_taps = plane is not None and plane.stride_x == plane.dilation_x == 1
        if row_of_taps and dims and self.nest.loops[dims[-1].loop].tag is Tag.KERNEL_COLUMN:
            inside += self._chunk_innermost(dims, self.config.limits.max_taps_per_load, size)
        if self.group and self._stride(data, self.group):
            stride = self._stride(data, self.group)
            dims.append(NdlDim(DimKind.H, self.index[self.group], self.nest.weights, stride))
        lane_stride = size if plane else self._stride(data, self.lane)
        inside += self._lanes(dims, lane_stride, size, self.config.limits.gather_groups)
        return [
            Ndl(Agent.DEDR, data.base, data.dtype, tuple(dims + inside)),
            Ndl(Agent.CEDW, 0, data.dtype, register_dims(dims)),
            Ndl(Agent.CEDR, 0, data.dtype, self.walk),
        ]

    def _lanes(self, dims: list[NdlDim], stride: int, size: int, addresses: int) -> list[NdlDim]:
        """The lane L dim; appends an H dim when the vector is gathered ``addresses`` elements at a time."""
        lane = self.index[self.lane]
        if stride in (0, size) or self.vector == 1:
            return [NdlDim(DimKind.L, lane, self.vector, stride)]
        if self.vector > addresses:
            dims.append(NdlDim(DimKind.H, lane, math.ceil(self.vector / addresses), stride * addresses, addresses))
        return [NdlDim(DimKind.L, lane, min(addresses, self.vector), stride)]

    def _weight(self, weight: Operand) -> list[Ndl]:
        dims = self._moving_dims(weight, frozenset())
        inside = self._lane_weights(weight, dims) if self._stride(weight, self.lane) else self._shared(weight, dims)
        return [
            Ndl(Agent.DEWR, weight.base, weight.dtype, tuple(dims + inside)),
            Ndl(Agent.CEWW, 0, weight.dtype, register_dims(dims)),
            Ndl(Agent.CEWR, 0, weight.dtype, self.walk),
        ]

    def _lane_weights(self, weight: Operand, dims: list[NdlDim]) -> list[NdlDim]:
        """L dims of a weight for every lane: a bus width a load, group members in turn (appended to ``dims``)."""
        lane, size = self.index[self.lane], weight.dtype.size
        lane_stride, group_stride = self._stride(weight, self.lane), self._stride(weight, self.group)
        run = self.config.weight_bus // size if lane_stride == size else 1
        if self.vector > run:
            dims.append(NdlDim(DimKind.H, lane, math.ceil(self.vector / run), lane_stride * run, run))
        if self.group and group_stride:
            dims.append(NdlDim(DimKind.H, self.index[self.group], self.nest.weights, group_stride))
        return [NdlDim(DimKind.L, lane, min(run, self.vector), lane_stride)]

    def _shared(self, weight: Operand, dims: list[NdlDim]) -> list[NdlDim]:
        """L dims of weights that all lanes share.

        Neighbouring group members come in one load, others in turn (appended to ``dims``).  Either way one load
        serves as many reduce steps as lie back to back and fill the weight memory.
        """
        size, stride = weight.dtype.size, self._stride(weight, self.group)
        members = self.nest.weights if stride else 1
        together = stride in (0, size)
        inside: list[NdlDim] = []
        if dims and dims[-1].stride == (size * members if together else size):
            inside += self._chunk_innermost(dims, self.config.weight_bus // (size * members), dims[-1].stride)
        if self.group and stride:
            target, kind = (inside, DimKind.L) if together else (dims, DimKind.H)
            target.append(NdlDim(kind, self.index[self.group], members, stride))
        return inside

    def _bias(self, bias: Operand) -> list[Ndl]:
        dims = self._moving_dims(bias, frozenset(), reduce=False)
        pair = 4 if bias.dtype is DType.FP32 else 8
        run = self.config.bias_bus // pair
        inside: list[NdlDim] = []
        for name, count in ((self.group, self.nest.weights), (self.lane, self.vector)):
            stride = self._stride(bias, name)
            if not name or not stride:
                continue
            length = run if stride == pair else 1
            if count > length:
                dims.append(NdlDim(DimKind.H, self.index[name], math.ceil(count / length), stride * length, length))
            inside.append(NdlDim(DimKind.L, self.index[name], min(length, count), stride))
        reads = self._nest_dims(None, reduce=False)
        return [
            Ndl(Agent.DEBR, bias.base, bias.dtype, tuple(dims + inside)),
            Ndl(Agent.ACBW, 0, bias.dtype, register_dims(dims)),
            Ndl(Agent.ACBR, 0, bias.dtype, register_dims(reads)),
        ]

    def _partials(self, dtype: DType) -> list[Ndl]:
        steps = self.walk
        kept = [Ndl(Agent.CEPW, 0, dtype, steps), Ndl(Agent.CEPR, 0, dtype, steps)]
        return [*kept, Ndl(Agent.ACPR, 0, dtype, self._drained())] if self.outputs else kept

    def _drained(self) -> tuple[NdlDim, ...]:
        """How ACT takes the accumulators of a vector from PRAM."""
        drained = self._nest_dims(None, reduce=False)
        if self.group and self.nest.weights > 1:
            drained.append(NdlDim(DimKind.H, self.index[self.group], self.nest.weights, 0))
        lane, width = self.index[self.lane], self.act_width
        drained.append(NdlDim(DimKind.H, lane, math.ceil(self.vector / width), 0, width))
        drained.append(NdlDim(DimKind.L, lane, min(width, self.vector), 0))
        return tuple(drained)

    def _result(self) -> Ndl:
        result, window = self.nest.result, self.nest.window
        dims = self._nest_dims(result, reduce=False)
        if self.group:
            stride = self._stride(result, self.group)
            kind = DimKind.H if self.nest.weights > 1 else DimKind.L
            dims.append(NdlDim(kind, self.index[self.group], self.nest.weights, stride))
        size, lane = result.dtype.size, self.index[self.lane]
        inside: list[NdlDim] = []
        stride = window.column_stride if window else self._stride(result, self.lane)
        if stride == size or self.vector == 1:
            run = self.config.result_bus // size
            if self.vector > run:
                dims.append(NdlDim(DimKind.H, lane, math.ceil(self.vector / run), stride * run, run))
            inside.append(NdlDim(DimKind.L, lane, min(run, self.vector), stride))
        else:
            inside += self._lanes(dims, stride, size, self.config.limits.scatter_addresses)
        if window:
            rows = math.ceil(self.extent[self.lane] / window.frame_width)
            inside.append(NdlDim(DimKind.S, lane, rows, window.row_stride, window.frame_width))
            inside.append(NdlDim(DimKind.S, lane, window.columns, window.column_stride))
        return Ndl(Agent.DEQW, result.base, result.dtype, tuple(dims + inside))


def register_dims(dims: Sequence[NdlDim]) -> tuple[NdlDim, ...]:
    """The same walk as a register descriptor: counts without memory strides."""
    return tuple(NdlDim(dim.kind, dim.loop, dim.count, 0, dim.step) for dim in dims)
