"""One pass of one tensor through ALU bypass and ACT: the body of every unary element-wise kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torq_byoc.kernels.copies import PASS
from torq_byoc.kernels.dsl import LoopNest, cheapest
from torq_byoc.kernels.views import View, collapse, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, SliceTask


def unary_task(
    target: View,
    source: View,
    bias: View | None,
    extent: Sequence[int],
    act: ActConfig,
    config: NpuConfig,
    table: tuple[tuple[int, int], ...] | None = None,
) -> SliceTask:
    """The cheapest task that sends a box through ACT.

    Args:
        target, source: output and input over the box.
        bias: the B operand over the box, if any.
        extent: the box.
        act: what ACT does.
        config: the machine.
        table: (base, slope) entries for a look-up.
    """
    extents, views = collapse(extent, (target, source, *([bias] if bias else [])))

    def nests() -> Iterator[LoopNest]:
        for walk in walks(extents, views[0]):
            yield LoopNest(
                walk.loops,
                walk.operand(views[0]),
                walk.operand(views[1]),
                bias=walk.operand(views[2]) if bias else None,
                alu=PASS,
                act=act,
                window=target.window,
                table=table,
                vector=walk.vector,
            )

    return cheapest(nests(), config)
