"""Residency: tensors that the schedule keeps in LRAM from their producer to their last reader never cross the bus.

Before (t resident)::

    call producer (-> a)     store a -> t[0:8]     ...     load t[4:12] -> b     call reader (b)

After::

    call producer (-> T)                           ...                           call reader (T)

Every operand becomes a part of one buffer ``T`` that holds the whole tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torq_byoc.codegen.hl import Buffer, BufferKind, CallOp, CallProgram, Load, PlacedOperand, SliceCall, Space, Store
from torq_byoc.codegen.passes.rewriting import Placing, moved
from torq_byoc.codegen.tile_places import whole_place


@dataclass(frozen=True)
class KeepResident:
    """The rewriting above.

    Attributes:
        tensors: names of the resident tensors.
    """

    tensors: frozenset[str]

    def __call__(self, program: CallProgram) -> CallProgram:
        """Give every resident tensor its LRAM buffer, and leave out its loads and stores."""
        homes, buffers = self._homes(program)
        if not homes:
            return program
        places: dict[int, Placing] = {}
        kept: list[CallOp] = []
        for op in program.ops:
            if type(op) is Load and op.source.buffer in homes:
                places[op.target.buffer] = _in_whole(homes[op.source.buffer])
            elif type(op) is Store and op.target.buffer in homes:
                places[op.source.buffer] = _in_whole(homes[op.target.buffer])
            else:
                kept.append(op)
        ops = [moved(op, places) if type(op) is SliceCall else op for op in kept]
        return replace(program, buffers=(*program.buffers, *buffers), ops=tuple(ops))

    def _homes(self, program: CallProgram) -> tuple[Mapping[int, int], list[Buffer]]:
        """LRAM buffer by XRAM buffer, and those new LRAM buffers."""
        homes: dict[int, int] = {}
        buffers: list[Buffer] = []
        for name in sorted(self.tensors & program.tensors.keys()):
            xram = program.buffers[program.tensors[name]]
            if xram.index not in homes:
                homes[xram.index] = len(program.buffers) + len(buffers)
                buffers.append(Buffer(homes[xram.index], xram.name, Space.LRAM, xram.nbytes, BufferKind.ACTIVATION))
        return homes, buffers


def _in_whole(buffer: int) -> Placing:
    def place(operand: PlacedOperand) -> PlacedOperand:
        return whole_place(buffer, operand.shape, operand.dtype)

    return place
