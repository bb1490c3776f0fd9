"""Giving the operands of kernel calls other places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from torq_byoc.codegen.hl import Access, CallProgram, PlacedConstant, PlacedOperand, SliceCall, SliceRun

Called = TypeVar("Called", SliceCall, SliceRun)
Operand = TypeVar("Operand", Access, PlacedOperand, PlacedConstant)
Placing = Callable[[PlacedOperand], PlacedOperand]
"""From an operand to the same operand in another place."""


def moved(call: SliceCall, places: Mapping[int, Placing]) -> SliceCall:
    """The call with every operand that lies in one of the buffers placed anew."""
    old = call.invocation
    if old.output.buffer not in places and not any([operand.buffer in places for operand in old.inputs]):
        return call
    buffers: dict[int, int] = {}

    def placed(operand: PlacedOperand) -> PlacedOperand:
        if operand.buffer not in places:
            return operand
        new = places[operand.buffer](operand)
        buffers[operand.buffer] = new.buffer
        return new

    output, inputs = placed(old.output), tuple(map(placed, old.inputs))
    accesses = _exchanged(call.accesses, buffers)
    return replace(call, invocation=replace(old, output=output, inputs=inputs), accesses=accesses)


def renamed(call: Called, names: Mapping[int, int]) -> Called:
    """The call with buffers exchanged for others that hold the same in the same places."""
    for access in call.accesses:
        if access.buffer in names:
            break
    else:
        return call
    old = call.invocation
    inputs, constants = _exchanged(old.inputs, names), _exchanged(old.constants, names)
    accesses = _exchanged(call.accesses, names)
    return replace(call, invocation=replace(old, inputs=inputs, constants=constants), accesses=accesses)


def _exchanged(operands: tuple[Operand, ...], names: Mapping[int, int]) -> tuple[Operand, ...]:
    """Operands with some of their buffers exchanged."""
    return tuple([replace(one, buffer=names[one.buffer]) if one.buffer in names else one for one in operands])


def placed_operands(program: CallProgram) -> dict[int, PlacedOperand]:
    """For every LRAM buffer that a kernel call reads or writes as a tile, that operand (the first one found)."""
    found: dict[int, PlacedOperand] = {}
    for op in program.ops:
        if type(op) is SliceCall:
            for operand in (op.invocation.output, *op.invocation.inputs):
                found.setdefault(operand.buffer, operand)
    return found
