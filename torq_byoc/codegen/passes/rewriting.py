"""Giving the operands of kernel calls other places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from torq_byoc.codegen.hl import CallProgram, PlacedOperand, SliceCall, SliceRun

Called = TypeVar("Called", SliceCall, SliceRun)
Placing = Callable[[PlacedOperand], PlacedOperand]
"""From an operand to the same operand in another place."""


def moved(call: SliceCall, places: Mapping[int, Placing]) -> SliceCall:
    """The call with every operand that lies in one of the buffers placed anew."""
    old = call.invocation
    buffers: dict[int, int] = {}

    def placed(operand: PlacedOperand) -> PlacedOperand:
        if operand.buffer not in places:
            return operand
        new = places[operand.buffer](operand)
        buffers[operand.buffer] = new.buffer
        return new

    output, inputs = placed(old.output), tuple(map(placed, old.inputs))
    if not buffers:
        return call
    operands = tuple(replace(access, buffer=buffers.get(access.buffer, access.buffer)) for access in call.operands)
    return replace(call, invocation=replace(old, output=output, inputs=inputs), operands=operands)


def renamed(call: Called, names: Mapping[int, int]) -> Called:
    """The call with buffers exchanged for others that hold the same in the same places."""
    if names.keys().isdisjoint([access.buffer for access in call.operands]):
        return call
    old = call.invocation
    inputs = tuple(replace(one, buffer=names.get(one.buffer, one.buffer)) for one in old.inputs)
    constants = tuple(replace(one, buffer=names.get(one.buffer, one.buffer)) for one in old.constants)
    operands = tuple(replace(access, buffer=names.get(access.buffer, access.buffer)) for access in call.operands)
    return replace(call, invocation=replace(old, inputs=inputs, constants=constants), operands=operands)


def placed_operands(program: CallProgram) -> dict[int, PlacedOperand]:
    """For every LRAM buffer that a kernel call reads or writes as a tile, that operand (the first one found)."""
    found: dict[int, PlacedOperand] = {}
    for op in program.ops:
        if isinstance(op, SliceCall):
            for operand in (op.invocation.output, *op.invocation.inputs):
                found.setdefault(operand.buffer, operand)
    return found
