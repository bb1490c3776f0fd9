"""Tiles that fill the LRAM in pairs: each finds the place of the one before the last, whatever halo it has."""

from __future__ import annotations

from schedules.models import add_conv, run_exact

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


def test_large_tiles_load_beside_the_slices_though_the_first_has_no_halo_above() -> None:
    """Two tiles of 10 rows and of the weights leave 14 KB; the first tile has 9 rows."""
    builder = GraphBuilder("tight")
    builder.output(add_conv(builder, builder.input("image", (1, 256, 56, 56), DType.INT8), 40))
    graph = builder.finish()
    fixed = NodeOverride(tile=(1, 40, 8, 56), order=(1, 2, 3, 0), split_axis=(1,), buffers=2)
    plan = schedule(graph, NpuConfig(), overrides=DecisionRecord({graph.nodes[0].name: fixed}))
    made = run_exact(graph, plan, NpuConfig())
    (entry,) = plan.nodes
    assert made.timeline.total_cycles < 1.001 * entry.estimate
