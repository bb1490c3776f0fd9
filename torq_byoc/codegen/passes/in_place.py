"""In place: a copy whose source and result can be one place in LRAM is not made.

Before::

    call first (-> a)     call second (-> b)     call concat (a, b -> y)     call reader (y)
    call split (y[0:4] -> c)                                                 call reader (c)

After::

    call first (-> y[0:4])     call second (-> y[4:8])                       call reader (y)
                                                                             call reader (y[0:4])

A source that kernel calls made is made in its part of the result; a result that is nothing but part of a source is read
there.  Either way the part must have the strides of the tile that it stands for, so that nobody's task changes but for
its addresses.  Calls say which inputs they only copy (``SliceCall.copies``); a call with nothing left to do is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from torq_byoc.codegen.hl import Access, CallOp, CallProgram, Load, PlacedOperand, SliceCall, Store
from torq_byoc.codegen.tile_places import DENSE, absent_place
from torq_byoc.kernels.kernel import Region
from torq_byoc.kernels.movement import moved as shifted


@dataclass(frozen=True)
class _Home:
    """Where a buffer has gone: into another one, from this byte on."""

    buffer: int
    offset: int


def in_place(program: CallProgram) -> CallProgram:
    """Merge the places of sources and results, and drop what copies have nothing left to do."""
    homes = _Homes(program).found
    if not homes:
        return program
    ops: list[CallOp] = []
    for op in program.ops:
        if type(op) is SliceCall:
            ops += _placed(op, homes)
        elif type(op) is Store and op.source.buffer in homes:
            home = homes[op.source.buffer]
            transfer = replace(op.transfer, lram_offset=op.transfer.lram_offset + home.offset)
            ops.append(replace(op, source=replace(op.source, buffer=home.buffer), transfer=transfer))
        else:
            ops.append(op)
    return program.with_ops(ops)


class _Homes:
    """Finds the new places of buffers."""

    def __init__(self, program: CallProgram) -> None:
        self.found: dict[int, _Home] = {}
        copying = [op for op in program.ops if type(op) is SliceCall and op.copies]
        if not copying:
            return
        self.loaded = {op.target.buffer for op in program.ops if type(op) is Load}
        self.stored = {op.source.buffer for op in program.ops if type(op) is Store}
        self.writers: dict[int, list[SliceCall]] = {}
        for op in program.ops:
            if type(op) is SliceCall:
                self.writers.setdefault(op.invocation.output.buffer, []).append(op)
        for call in copying:
            for which, shift in call.copies:
                self._merge(call, which, shift)

    def _merge(self, call: SliceCall, which: int, shift: Sequence[int]) -> None:
        """Give one copied input and the result one place, if they can have one."""
        made, written = call.invocation.inputs[which].buffer, call.invocation.output.buffer
        source, result = _now(call.invocation.inputs[which], self.found), _now(call.invocation.output, self.found)
        if source.buffer < 0 or source.buffer == result.buffer:
            return
        inside = _distance(source, result, shift)
        if inside is not None and made not in self.loaded and made not in self.found:
            self._settle(source.buffer, _Home(result.buffer, inside))
            return
        inside = _distance(result, source, [-step for step in shift])
        if inside is not None and written not in self.found and self._only_reads(call, which, source.buffer):
            self._settle(result.buffer, _Home(source.buffer, inside))

    def _only_reads(self, call: SliceCall, which: int, source: int) -> bool:
        """Whether a result is nothing but part of one source, and needs no place of its own to be stored from."""
        writers = self.writers[call.invocation.output.buffer]
        if any(writer.copies != call.copies for writer in writers) or len(call.copies) > 1:
            return False
        sources = {writer.invocation.inputs[which].buffer for writer in writers}
        return len(sources) == 1 and not (source in self.loaded and call.invocation.output.buffer in self.stored)

    def _settle(self, buffer: int, home: _Home) -> None:
        """Note a new place, and let those who went to the buffer before go there as well."""
        self.found[buffer] = home
        if buffer in self.stored:
            self.stored.add(home.buffer)
        for other, known in self.found.items():
            if known.buffer == buffer:
                self.found[other] = _Home(home.buffer, known.offset + home.offset)


def _now(operand: PlacedOperand, homes: dict[int, _Home]) -> PlacedOperand:
    """An operand in its present place."""
    home = homes.get(operand.buffer)
    return operand if home is None else replace(operand, buffer=home.buffer, offset=operand.offset + home.offset)


def _distance(part: PlacedOperand, whole: PlacedOperand, shift: Sequence[int]) -> int | None:
    """From the start of one operand's buffer, byte by which it moves to lie in its part of another one; None if it
    does not fit there."""
    region = shifted(part.region, shift)
    pairs = zip(region.start, region.extent, whole.region.start, whole.region.extent, strict=True)
    if part.phases != DENSE or whole.phases != DENSE or any(a < b or a + m > b + n for a, m, b, n in pairs):
        return None
    strides = zip(part.region.extent, part.strides, whole.strides, strict=True)
    if any(extent > 1 and mine != others for extent, mine, others in strides):
        return None
    steps = zip(region.start, whole.region.start, whole.strides, strict=True)
    return whole.offset + sum((a - b) * stride for a, b, stride in steps) - part.offset


def _placed(call: SliceCall, homes: dict[int, _Home]) -> list[SliceCall]:
    """The call with its operands in their new places, without what it need not copy any more; none if that is all."""
    old = call.invocation
    output, inputs = _now(old.output, homes), [_now(operand, homes) for operand in old.inputs]
    idle = {which for which, shift in call.copies if _lies_right(inputs[which], output, shift)}
    for which in idle:
        empty = Region(inputs[which].region.start, (0,) * len(inputs[which].shape))
        inputs[which] = absent_place(inputs[which].shape, inputs[which].dtype, empty)
    if idle and all(operand.buffer < 0 for operand in inputs):
        return []
    needed = {operand.buffer for which, operand in enumerate(old.inputs) if which not in idle}
    dropped = {old.inputs[which].buffer for which in idle} - needed
    operands = [_access(access, homes) for access in call.accesses if access.buffer not in dropped]
    return [replace(call, invocation=replace(old, output=output, inputs=tuple(inputs)), accesses=tuple(operands))]


def _lies_right(source: PlacedOperand, result: PlacedOperand, shift: Sequence[int]) -> bool:
    """Whether the elements of a source are in their places in the result without being copied."""
    if source.buffer < 0 or source.buffer != result.buffer:
        return False
    start = [first + step for first, step in zip(source.region.start, shift, strict=True)]
    steps = zip(start, result.region.start, result.strides, strict=True)
    return source.offset == result.offset + sum((a - b) * stride for a, b, stride in steps)


def _access(access: Access, homes: dict[int, _Home]) -> Access:
    home = homes.get(access.buffer)
    return access if home is None else replace(access, buffer=home.buffer)
