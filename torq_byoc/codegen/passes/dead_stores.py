"""Dead-store elimination: a store whose bytes nobody loads is not made.

Before::

    run tile 0 -> a      store a -> t[0:8]      run ... (t is never loaded and is no output)

After::

    run tile 0 -> a      run ...
"""

from __future__ import annotations

from torq_byoc.codegen.hl import BufferKind, CallProgram, Load, Store


def eliminate_dead_stores(program: CallProgram) -> CallProgram:
    """Drop stores into scratch XRAM buffers that no later load reads."""
    kept = []
    pending_reads: dict[int, list[Load]] = {}
    for op in reversed(program.ops):
        if isinstance(op, Store) and program.buffers[op.target.buffer].kind is BufferKind.ACTIVATION:
            readers = pending_reads.get(op.target.buffer, [])
            if not any(op.target.conflicts_with(reader.source) for reader in readers):
                continue
        if isinstance(op, Load):
            pending_reads.setdefault(op.source.buffer, []).append(op)
        kept.append(op)
    return program.with_ops(kept[::-1])
