"""Loop-invariant loads: an operand that the previous tile of the node already brought in is not loaded again.

Before::

    load  w[0:4]  -> a        load  x[0:8]  -> b        call tile 0 (a, b)
    load  w[0:4]  -> c        load  x[8:16] -> d        call tile 1 (c, d)

After::

    load  w[0:4]  -> a        load  x[0:8]  -> b        call tile 0 (a, b)
                              load  x[8:16] -> d        call tile 1 (a, d)

Two tile buffers hold the same bytes when the same transfers filled them from the same XRAM buffer and nothing wrote
that buffer in between.  Only neighbouring tiles of one node (in a fused group: its tiles of neighbouring bands) share,
so the live range grows by one tile or band, which the schedule has accounted for.  What different slices read is left
apart: bringing that together is another pass.
"""

from __future__ import annotations

from torq_byoc.codegen.hl import CallProgram, Load, SliceCall, Store, Transfer
from torq_byoc.codegen.passes.rewriting import renamed

_Fill = tuple[str, int, int, tuple[Transfer, ...], int]
"""Node, XRAM buffer, how often that was stored to, transfers, first slice that reads."""


def hoist_loop_invariant(program: CallProgram) -> CallProgram:
    """Apply the rewriting above to every pair of neighbouring tiles."""
    names: dict[int, int] = {}
    previous: dict[_Fill, tuple[int, int]] = {}
    for buffer, (tile, fill) in _fills(program).items():
        kept = previous.get(fill)
        if kept is not None and kept[1] >= tile - 1:
            names[buffer] = kept[0]
            previous[fill] = (kept[0], tile)
        else:
            previous[fill] = (buffer, tile)
    if not names:
        return program
    return program.with_ops(
        [
            renamed(op, names) if type(op) is SliceCall else op
            for op in program.ops
            if not (type(op) is Load and op.target.buffer in names)
        ]
    )


def _fills(program: CallProgram) -> dict[int, tuple[int, _Fill]]:
    """For every loaded LRAM buffer its tile and what fills it, in order of first load."""
    versions: dict[int, int] = {}
    transfers: dict[int, tuple[Transfer, ...]] = {}
    origin: dict[int, tuple[int, str, int, int]] = {}
    reader: dict[int, int] = {}
    for op in program.ops:
        if type(op) is Store:
            versions[op.target.buffer] = versions.get(op.target.buffer, 0) + 1
        elif type(op) is Load:
            source, target = op.source.buffer, op.target.buffer
            if target in origin:
                transfers[target] += (op.transfer,)
            else:
                transfers[target] = (op.transfer,)
                origin[target] = (op.tile, op.node, source, versions.get(source, 0))
        elif type(op) is SliceCall:
            for access in op.accesses:
                if access.buffer not in reader:
                    reader[access.buffer] = op.slice_index
    return {
        buffer: (tile, (node, source, version, transfers[buffer], reader.get(buffer, 0)))
        for buffer, (tile, node, source, version) in origin.items()
    }
