"""Share loads: an operand that the previous tile of the node already brought in is not loaded again.

Before::

    load  w[0:4]  -> a        load  x[0:8]  -> b        run tile 0 (a, b)
    load  w[0:4]  -> c        load  x[8:16] -> d        run tile 1 (c, d)

After::

    load  w[0:4]  -> a        load  x[0:8]  -> b        run tile 0 (a, b)
                              load  x[8:16] -> d        run tile 1 (a, d)

Two tile buffers hold the same bytes when the same transfers filled them from the same XRAM buffer and
nothing wrote that buffer in between.  Only neighbouring tiles of one node (in a fused group: its tiles of
neighbouring bands) share, so the live range grows by one tile or band, which the schedule has accounted for.
"""

from __future__ import annotations

from dataclasses import replace

from torq_byoc.codegen.hl import (
    Access,
    HlProgram,
    Load,
    Op,
    SliceRun,
    Store,
    Transfer,
)

_Fill = tuple[str, int, int, tuple[Transfer, ...]]


def share_loads(program: HlProgram) -> HlProgram:
    """Apply the rewriting above to every pair of neighbouring tiles."""
    fills = _fills(program)
    replacement: dict[int, int] = {}
    previous: dict[_Fill, tuple[int, int]] = {}
    for buffer, (tile, fill) in fills.items():
        kept = previous.get(fill)
        if kept is not None and kept[1] >= tile - 1:
            replacement[buffer] = kept[0]
            previous[fill] = (kept[0], tile)
        else:
            previous[fill] = (buffer, tile)
    ops: list[Op] = []
    for op in program.ops:
        if isinstance(op, Load) and op.target.buffer in replacement:
            continue
        ops.append(_renamed(op, replacement) if isinstance(op, SliceRun) else op)
    return program.with_ops(ops)


def _fills(program: HlProgram) -> dict[int, tuple[int, _Fill]]:
    """For every loaded LRAM buffer its tile and what fills it, in order of first load."""
    versions: dict[int, int] = {}
    transfers: dict[int, list[Transfer]] = {}
    origin: dict[int, tuple[int, str, int, int]] = {}
    for op in program.ops:
        if isinstance(op, Store):
            versions[op.target.buffer] = versions.get(op.target.buffer, 0) + 1
        elif isinstance(op, Load):
            source = op.source.buffer
            transfers.setdefault(op.target.buffer, []).append(op.transfer)
            origin.setdefault(op.target.buffer, (op.tile, op.node, source, versions.get(source, 0)))
    fills = {}
    for buffer, (tile, node, source, version) in origin.items():
        fills[buffer] = (tile, (node, source, version, tuple(transfers[buffer])))
    return fills


def _renamed(op: SliceRun, replacement: dict[int, int]) -> SliceRun:
    def name(buffer: int) -> int:
        return replacement.get(buffer, buffer)

    old = op.invocation
    invocation = replace(
        old,
        inputs=tuple(replace(operand, buffer=name(operand.buffer)) for operand in old.inputs),
        constants=tuple(replace(constant, buffer=name(constant.buffer)) for constant in old.constants),
    )
    operands: tuple[Access, ...] = tuple(replace(access, buffer=name(access.buffer)) for access in op.operands)
    return replace(op, invocation=invocation, operands=operands)
