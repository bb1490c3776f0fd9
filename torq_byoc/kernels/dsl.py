"""The kernel DSL: one loop-nest description from which descriptors and cycles derive.

A kernel says which loops it runs, with which byte strides each operand walks them, and what ALU and ACT
do.  ``build`` turns that into a ``SliceTask`` whose descriptors carry the cycle count: an operand that does
not change in the innermost loops is loaded once, a vector that is not contiguous in memory takes one load
for every gather group, a depthwise group loads each of its channels in turn.
Whether a slice can do it is checked where programs are cut (``limits``).
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from torq_byoc.errors import KernelError
from torq_byoc.kernels.derive import Derivation
from torq_byoc.kernels.derive_blocks import BlockDerivation
from torq_byoc.kernels.nest import LoopNest, LoopSpec, Operand
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActMode, Agent, Ndl, Op0, Op1, Role, SliceTask
from torq_byoc.npu_model.timing import task_cycles

__all__ = ["LoopNest", "LoopSpec", "Operand", "build", "cheapest"]

_MOST_PATTERNS = 1 << 15


def build(nest: LoopNest, config: NpuConfig) -> SliceTask:
    """Derive the descriptors of a loop nest.

    Args:
        nest: the kernel's loop nest with LRAM byte addresses.
        config: the machine, for vector widths and bus widths.

    Returns:
        The slice task; its cost is ``timing.task_cycles``.

    Raises:
        KernelError: the nest breaks a rule of the DSL (roles, order, names, a missing operand).
    """
    return cheapest([nest], config)


def cheapest(nests: Iterable[LoopNest], config: NpuConfig) -> SliceTask:
    """The task of the nest that costs the fewest cycles; the first one when several do.

    Raises:
        KernelError: as ``build``.
    """
    derived = [(_pattern(nest, config), nest) for nest in nests]
    pattern, nest = min(derived, key=lambda pair: pair[0].cycles)
    return pattern.placed(nest)


@dataclass(frozen=True, eq=False)
class _Pattern:
    """The part of a task that does not depend on where its operands lie.

    Attributes:
        task: a task whose operands all lie at 0.
        cycles: what it costs.
    """

    task: SliceTask
    cycles: int

    @classmethod
    def of(cls, nest: LoopNest, config: NpuConfig) -> _Pattern:
        """Derive the descriptors of a nest."""
        _check_rules(nest)
        in_blocks = nest.alu is not None and nest.alu.op1 is Op1.CARRY
        derivation = BlockDerivation if in_blocks else Derivation
        task = derivation(_without_unit_loops(nest), config).task()
        return cls(task, task_cycles(task))

    def placed(self, nest: LoopNest) -> SliceTask:
        """The task of a nest of this pattern."""
        operands = {Agent.DEDR: nest.data, Agent.DEWR: nest.weight, Agent.DEBR: nest.bias, Agent.DEQW: nest.result}
        ndls = tuple(
            ndl if (operand := operands.get(ndl.agent)) is None else Ndl(ndl.agent, operand.base, ndl.dtype, ndl.dims)
            for ndl in self.task.ndls
        )
        return SliceTask(
            self.task.loops,
            self.task.vector,
            self.task.weights,
            ndls,
            nest.alu,
            nest.act,
            nest.plane,
            nest.window,
            nest.table,
            nest.fill_value,
        )


def _pattern(nest: LoopNest, config: NpuConfig) -> _Pattern:
    """The pattern of a nest; remembered, since the tiles of a node, and of nodes like it, differ in addresses alone."""
    known = _patterns(config)
    key = _without_bases(nest)
    if key not in known:
        if len(known) >= _MOST_PATTERNS:
            known.clear()
        known[key] = _Pattern.of(nest, config)
    return known[key]


@functools.lru_cache(maxsize=16)
def _patterns(config: NpuConfig) -> dict[Hashable, _Pattern]:
    """The patterns found so far for a machine."""
    del config
    return {}


def _without_bases(nest: LoopNest) -> Hashable:
    """Everything of a nest that its pattern follows from."""
    operands = tuple(
        None if operand is None else (operand.dtype, tuple(operand.strides.items()))
        for operand in (nest.result, nest.data, nest.weight, nest.bias)
    )
    rest = (nest.table and len(nest.table), nest.fill_value, nest.vector, nest.weights)
    return (nest.loops, operands, nest.alu, nest.act, nest.plane, nest.window, *rest)


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
    if nest.alu.op1 is Op1.CARRY and Role.GROUP not in roles:
        raise _rule_broken(nest, "a block has a group loop: what its columns run along")
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
    """Leave out parallel and reduce loops of one iteration, so that kernels need not treat them apart; bases are 0."""
    kept = tuple(loop for loop in nest.loops if loop.extent > 1 or loop.role in (Role.LANE, Role.GROUP))
    names = {loop.name for loop in kept}

    def trimmed(operand: Operand) -> Operand:
        return Operand(0, operand.dtype, {name: step for name, step in operand.strides.items() if name in names})

    return replace(
        nest,
        loops=kept,
        result=trimmed(nest.result),
        data=trimmed(nest.data) if nest.data else None,
        weight=trimmed(nest.weight) if nest.weight else None,
        bias=trimmed(nest.bias) if nest.bias else None,
    )
