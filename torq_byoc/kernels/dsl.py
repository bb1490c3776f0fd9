"""The kernel DSL: one loop-nest description from which descriptors, capacity checks and cycles derive.

A kernel says which loops it runs, with which byte strides each operand walks them, and what ALU and ACT
do.  ``build`` turns that into a ``SliceTask`` whose descriptors carry the cycle count: an operand that does
not change in the innermost loops is loaded once, a vector that is not contiguous in memory takes one load
for every gather group, a depthwise group loads each of its channels in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torq_byoc.errors import KernelError
from torq_byoc.kernels.derive import Derivation
from torq_byoc.kernels.limits import check_task
from torq_byoc.kernels.nest import LoopNest, LoopSpec, Operand
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActMode, Op0, Role, SliceTask
from torq_byoc.npu_model.timing import task_cycles

__all__ = ["LoopNest", "LoopSpec", "Operand", "build", "cheapest"]


def build(nest: LoopNest, config: NpuConfig) -> SliceTask:
    """Derive the descriptors of a loop nest.

    Args:
        nest: the kernel's loop nest with LRAM byte addresses.
        config: the machine, for vector widths and bus widths.

    Returns:
        The slice task; its cost is ``timing.task_cycles``.

    Raises:
        KernelError: the nest breaks a rule of the DSL (roles, order, names, a missing operand) or exceeds a
            capacity of the slice.
    """
    return cheapest([nest], config)


def cheapest(nests: Iterable[LoopNest], config: NpuConfig) -> SliceTask:
    """The task of the nest that costs the fewest cycles; the first one when several do.

    Raises:
        KernelError: as ``build``; capacities are checked for the one that is taken.
    """
    derived = []
    for nest in nests:
        _check_rules(nest)
        kept = _without_unit_loops(nest)
        derived.append((Derivation(kept, config).task(), kept))
    task, nest = min(derived, key=lambda pair: task_cycles(pair[0]))
    check_task(task, [loop.name for loop in nest.loops], config)
    return task


def _check_rules(nest: LoopNest) -> None:
    """Rules that make a nest meaningful at all."""
    names = [loop.name for loop in nest.loops]
    roles = [loop.role for loop in nest.loops]
    if len(set(names)) != len(names):
        raise _rule_broken(nest, "two loops have one name")
    if any(loop.extent < 1 for loop in nest.loops):
        raise _rule_broken(nest, "a loop has no iterations")
    if roles.count(Role.LANE) != 1 or roles.count(Role.GROUP) > 1:
        raise _rule_broken(nest, "a nest has one lane loop and at most one group loop")
    if Role.REDUCE in roles and any(role is not Role.REDUCE for role in roles[roles.index(Role.REDUCE) :]):
        raise _rule_broken(nest, "reduce loops stand inside all others")
    for operand in (nest.data, nest.weight, nest.bias, nest.result):
        unknown = set(operand.strides) - set(names) if operand else set()
        if unknown:
            raise _rule_broken(nest, f"an operand has strides for {sorted(unknown)}, which are no loops")
    if nest.fill_value is not None:
        return
    if nest.data is None or nest.alu is None:
        raise _rule_broken(nest, "a compute nest needs a data operand and an ALU configuration")
    if (nest.alu.op0 is Op0.MUL) != (nest.weight is not None):
        raise _rule_broken(nest, "a weight operand belongs to a multiplication, and a multiplication needs one")
    if (nest.act.mode is ActMode.TABLE) != (nest.table is not None):
        raise _rule_broken(nest, "a table belongs to the table mode of ACT, and that mode needs one")


def _rule_broken(nest: LoopNest, why: str) -> KernelError:
    return KernelError(
        "a loop nest breaks a rule of the kernel DSL",
        where="loops " + ", ".join(f"{loop.name}[{loop.extent}] {loop.role.name.lower()}" for loop in nest.loops),
        why=why,
        remedy="correct the kernel that built it",
    )


def _without_unit_loops(nest: LoopNest) -> LoopNest:
    """Leave out parallel and reduce loops of one iteration, so that kernels need not treat them apart."""
    kept = tuple(loop for loop in nest.loops if loop.extent > 1 or loop.role in (Role.LANE, Role.GROUP))
    names = {loop.name for loop in kept}

    def trimmed(operand: Operand) -> Operand:
        return replace(operand, strides={name: step for name, step in operand.strides.items() if name in names})

    return replace(
        nest,
        loops=kept,
        result=trimmed(nest.result),
        data=trimmed(nest.data) if nest.data else None,
        weight=trimmed(nest.weight) if nest.weight else None,
        bias=trimmed(nest.bias) if nest.bias else None,
    )
