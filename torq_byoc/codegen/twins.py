"""Calls that are alike, and where their operands should lie for their programs to come out equal.

A program that LRAM holds already is not sent again (``share_programs``).  The programs of layers of one shape, or of a
layer's tiles, differ in addresses alone.  Operands of such a call have twins: those of the call before, and of the one
before that, for places that are still in use::

    weights 0 -> a    weights 1 -> b    weights 2 -> c        three programs
    weights 0 -> a    weights 1 -> b    weights 2 -> a        the program of weights 0 serves weights 2
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from torq_byoc.codegen.call_forms import operand_buffers
from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.hl import RunProgram, SliceRun

PERIOD = 2
"""Calls back to which twins are looked for: what the last call reads is in use while the next one's is loaded."""


@dataclass(frozen=True, eq=False)
class Twins:
    """The twins of a program's buffers.

    Attributes:
        latest: for operands, those of the calls before, of the latest one first.
        following: for operands, those of the call ``PERIOD`` calls after: they are loaded once their places are free.
        kept: for buffers of slice programs, the last step for which they should stay: an equal program runs then.
    """

    latest: Mapping[int, tuple[int, ...]]
    following: Mapping[int, int]
    kept: Mapping[int, int]

    @classmethod
    def of(cls, program: RunProgram, calls: CallImages) -> Twins:
        """The twins in a program; none where no two calls are alike.

        Args:
            program: torq_hl.
            calls: of the same program.
        """
        latest: dict[int, tuple[int, ...]] = {}
        following: dict[int, int] = {}
        kept: dict[int, int] = {}
        before: dict[Hashable, list[SliceRun]] = {}
        for op in program.ops:
            if type(op) is not SliceRun:
                continue
            alike = before.setdefault((op.slice_index, calls.without_places(op)), [])
            earlier = alike[: -PERIOD - 1 : -1]
            operands = [operand_buffers(run.invocation) for run in earlier]
            for index, buffer in enumerate(operand_buffers(op.invocation)):
                if buffer >= 0 and buffer not in latest:
                    latest[buffer] = tuple(buffers[index] for buffers in operands)
                    if len(operands) == PERIOD and operands[-1][index] != buffer:
                        following.setdefault(operands[-1][index], buffer)
            for run in earlier:
                kept[run.program] = op.step
            alike.append(op)
        return cls(latest, following, kept)

    def chain(self, buffer: int) -> list[int]:
        """The operands that take the place of one after it, one after the other."""
        found: list[int] = []
        after = self.following.get(buffer)
        while after is not None:
            found.append(after)
            after = self.following.get(after)
        return found


NO_TWINS = Twins({}, {}, {})
