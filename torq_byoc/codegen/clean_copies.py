"""Clean copies: what a load would bring may still lie in LRAM, loaded or made by an earlier node.

Before::

    load x[0:8] -> a     run first (a)              run second (-> b)     store b -> t[0:8]
    load x[0:8] -> c     run third (c)              load t[0:8] -> d      run fourth (d)

After::

    load x[0:8] -> a     run first (a)              run second (-> b)     store b -> t[0:8]
                         run third (a)                                    run fourth (b)

A copy is clean while nothing overwrites what it was loaded from or stored to; it stays as long as nobody needs its
place (``placement``) and is dropped without a store then, XRAM having the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from torq_byoc.codegen.hl import Access, BufferKind, Load, RunProgram, Store, Transfer

Content = tuple[int, int, tuple[Transfer, ...]]
"""XRAM buffer, the tile buffer last stored to that part of it (-1: none), and the transfers that move the part."""


class Copy(msgspec.Struct, frozen=True, gc=False):
    """What an LRAM buffer holds that XRAM holds as well, and the node that brought or made it."""

    content: Content
    node: str


def clean_copies(program: RunProgram) -> Mapping[int, Copy]:
    """All copies by their LRAM buffer; slice programs are left to ``share_programs``."""
    writers: dict[int, list[Store]] = {}
    transfers: dict[int, list[Transfer]] = {}
    origin: dict[int, tuple[int, int, str]] = {}
    for op in program.ops:
        if type(op) is Load and program.buffers[op.target.buffer].kind is not BufferKind.PROGRAM:
            buffer = op.target.buffer
            if buffer not in origin:
                origin[buffer] = (op.source.buffer, _last_writer(op.source, writers), op.node)
        elif type(op) is Store:
            buffer = op.source.buffer
            origin.setdefault(buffer, (op.target.buffer, buffer, op.node))
            writers.setdefault(op.target.buffer, []).append(op)
        else:
            continue
        transfers.setdefault(buffer, []).append(op.transfer)
    return {
        buffer: Copy((xram, writer, tuple(transfers[buffer])), node) for buffer, (xram, writer, node) in origin.items()
    }


def _last_writer(read: Access, writers: Mapping[int, Sequence[Store]]) -> int:
    """The tile buffer that was last stored to a part of XRAM."""
    for store in reversed(writers.get(read.buffer, ())):
        if store.target.conflicts_with(read):
            return store.source.buffer
    return -1
