"""Share between slices: what several slices, or several operands, need in one step is loaded once.

Before::

    load  w -> a     load  w -> b     call slice 0 (a)     call slice 1 (b)

After::

    load  w -> a                      call slice 0 (a)     call slice 1 (a)

Only buffers that nothing but loads writes are merged, so whoever reads one may read the other.
"""

from __future__ import annotations

from torq_byoc.codegen.hl import CallProgram, Load, SliceCall, Transfer
from torq_byoc.codegen.passes.rewriting import renamed

_Fill = tuple[int, int, tuple[Transfer, ...]]
"""Step, XRAM buffer, transfers: what a buffer holds."""


def share_slices(program: CallProgram) -> CallProgram:
    """Merge tile buffers that the same transfers fill in the same step."""
    fills: dict[int, _Fill] = {}
    for op in program.ops:
        if type(op) is Load:
            target = op.target.buffer
            if target in fills:
                step, source, known = fills[target]
                fills[target] = (step, source, (*known, op.transfer))
            else:
                fills[target] = (op.step, op.source.buffer, (op.transfer,))
    kept: dict[_Fill, int] = {}
    names = {buffer: kept.setdefault(fill, buffer) for buffer, fill in fills.items()}
    names = {buffer: holder for buffer, holder in names.items() if buffer != holder}
    if not names:
        return program
    return program.with_ops(
        [
            renamed(op, names) if type(op) is SliceCall else op
            for op in program.ops
            if not (type(op) is Load and op.target.buffer in names)
        ]
    )
