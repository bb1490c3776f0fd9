"""Block transpositions: 32 rows of 32 bytes at a time through PRAM, far faster than lanes gathered one by one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.views import View
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, Role
from torq_byoc.npu_model.timing import task_cycles

_CARRY = AluConfig(Op0.DBYP, Op1.CARRY)
_SHORTEST = 4
"""Extents below this leave most of a block empty; a gather or a scatter is as fast."""


@functools.lru_cache(maxsize=64)
def block_cycles(size: int, config: NpuConfig) -> int | None:
    """Cycles of a block of elements of ``size`` bytes (``timing.task_cycles``); None where a machine has no blocks."""
    edge = config.block_bytes
    if size > 2 or edge > config.data_vector or edge * size > config.result_bus:
        return None
    points = (LoopSpec("lane", edge // size, Role.LANE), LoopSpec("group", edge, Role.GROUP))
    kind = DType.INT8 if size == 1 else DType.INT16
    result = Operand(0, kind, {"lane": edge * size, "group": size})
    data = Operand(0, kind, {"lane": size, "group": edge})
    return task_cycles(build(LoopNest(points, result, data, alu=_CARRY, vector=edge // size, weights=edge), config))


def transposing_nests(source: View, target: View, extent: Sequence[int], config: NpuConfig) -> Iterator[LoopNest]:
    """Nests that copy a box block by block, for every pair of axes of which each side runs along one.

    Args:
        source, target: views over the box, of integers of one type; there are none for elements of four bytes.
        extent: the box.
        config: the machine.
    """
    size, edge = source.dtype.size, config.block_bytes
    if block_cycles(size, config) is None:
        return
    for lane in range(len(extent)):
        for group in range(len(extent)):
            along = source.strides[lane] == size and target.strides[group] == size
            if lane == group or not along or min(extent[lane], extent[group]) < _SHORTEST:
                continue
            outer = [axis for axis in range(len(extent)) if axis not in (lane, group)]
            roles = [*((axis, Role.PARALLEL) for axis in outer), (lane, Role.LANE), (group, Role.GROUP)]
            yield LoopNest(
                tuple(LoopSpec(f"x{axis}", extent[axis], role) for axis, role in roles),
                _operand(target),
                _operand(source),
                alu=_CARRY,
                vector=edge // size,
                weights=edge,
            )


def _operand(view: View) -> Operand:
    return Operand(view.address, view.dtype, {f"x{axis}": step for axis, step in enumerate(view.strides) if step})
