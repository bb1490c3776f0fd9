"""Dead-store elimination: a store whose bytes nobody loads is not made.

Before::

    run tile 0 -> a      store a -> t[0:8]      run ... (t is never loaded and is no output)

After::

    run tile 0 -> a      run ...
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from torq_byoc.codegen.hl import BufferKind, CallProgram, Load, Store


@dataclass
class _Reads:
    """Loads from one buffer; ``near`` is the number of the one that was found last."""

    loads: list[Load] = field(default_factory=list)
    near: int = 0

    def has_reader(self, store: Store) -> bool:
        """Whether one of them reads what is stored: a tensor is mostly read in the order in which it is written, so it
        is looked for from where the last one was."""
        for number in itertools.chain(range(self.near, len(self.loads)), range(self.near)):
            if store.target.conflicts_with(self.loads[number].source):
                self.near = number
                return True
        return False


def _is_dead(program: CallProgram, store: Store, pending_reads: Mapping[int, _Reads]) -> bool:
    target = store.target.buffer
    return program.buffers[target].kind is BufferKind.ACTIVATION and not pending_reads[target].has_reader(store)


def eliminate_dead_stores(program: CallProgram) -> CallProgram:
    """Drop stores into scratch XRAM buffers that no later load reads."""
    kept = []
    pending_reads: defaultdict[int, _Reads] = defaultdict(_Reads)
    for op in reversed(program.ops):
        if type(op) is Store and _is_dead(program, op, pending_reads):
            continue
        if type(op) is Load:
            pending_reads[op.source.buffer].loads.append(op)
        kept.append(op)
    return program.with_ops(kept[::-1])
