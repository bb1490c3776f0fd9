"""Means of rows, and what is made of them until it meets the rows again, have codes of 16 bits.

Before: ``m = ReduceMean(x); v = Sub(ReduceMean(Mul(x, x)), Mul(m, m)); y = Mul(Sub(x, m), Reciprocal(Sqrt(v)))``,
        every tensor in codes of 8 bits
After:  ``m``, its square, ``v`` and all up to the factor in codes of 16 bits; ``x`` and ``y`` in 8

One number stands for a row: its error is that of the whole row, and no average takes it out; nor does it where a row to
come goes beyond those seen, for which 16 bits have codes to spare (``observers.headroom``).  The difference of two
means has even fewer bits than they have.  Beside the rows these tensors are small.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx

from torq_byoc.frontend.graph import producers, readers
from torq_byoc.frontend.shapes import known_shapes
from torq_byoc.quantize import rules
from torq_byoc.quantize.choose_ranges import ROOMY
from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.wide_tensors import can_be_wide

LEAST_GAIN = 0.25
"""Decibels of merit for which it is done: it costs next to nothing."""
SMALLEST_ROW = 8
"""Values that a mean is of, at least."""
_MEANS = frozenset({"ReduceMean", "ReduceSum"})
_STEPS = frozenset({*rules.TWO_OPERANDS, *rules.SAME_SCALE, "Abs", "Neg", "Pow", "Reciprocal", "Sqrt"})
"""Operators between a mean and what is done with it to the rows."""


def wide_statistics(
    candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere
) -> Iterator[Proposal]:
    """One proposal: all means and what is made of them; what the samples hold plays no part."""
    del statistics
    makers = producers(candidate.model.graph)
    found = [name for name in _statistics(candidate.model) if within([makers[name].name])]
    wide = can_be_wide(candidate, found)
    if wide:
        means = sum(makers[name].op_type in _MEANS for name in wide)
        yield Proposal(
            candidate.with_wide(wide, ROOMY),
            tuple(makers[name].name for name in wide),
            f"{means} tensors of means are taken from the rows that they are of, or multiplied with them",
            least_gain=LEAST_GAIN,
        )


def _statistics(model: onnx.ModelProto) -> list[str]:
    """Means of rows and what follows from them alone, where all of it goes back to rows; in graph order."""
    users, outputs = readers(model.graph), {value.name for value in model.graph.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    sizes = {name: prod(extent or 0 for extent in shape) for name, shape in known_shapes(model).items()}
    small: dict[str, None] = {}
    for node in model.graph.node:
        computed = [name for name in node.input if name and name not in stored]
        row = sizes.get(node.input[0], 0) // max(sizes.get(node.output[0], 0), 1) if node.op_type in _MEANS else 0
        follows = node.op_type in (*_STEPS, *_MEANS) and computed and all(name in small for name in computed)
        if row >= SMALLEST_ROW or follows:
            small[node.output[0]] = None
    kept: set[str] = set()
    for name in reversed(small):
        following = users.get(name, [])
        back = all(
            user.op_type in (*_STEPS, *_MEANS) and (user.output[0] in kept or user.output[0] not in small)
            for user in following
        )
        if following and back and name not in outputs:
            kept.add(name)
    return [name for name in small if name in kept]
