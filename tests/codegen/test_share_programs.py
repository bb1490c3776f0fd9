"""Programs that LRAM holds already: found in fused groups, never where their place is taken in between."""

from __future__ import annotations

import numpy as np
from codegen.infra import check_program

from torq_byoc.codegen.generate import generate
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.plan import schedule


def chain(rows: int = 512) -> OpGraph:
    """A table between two passes: its operands never leave LRAM."""
    builder = GraphBuilder("test")
    x, shape = builder.input("x", (1, rows, 64), DType.INT16), (1, rows, 64)
    plain = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32), sum_bits=48)
    table = np.stack([np.arange(-256, 256) * 100, np.full(512, 97)], axis=1).astype(np.int16)
    first = builder.emit("act", [x], shape, DType.INT16, attrs={"mode": "NEG"}, rescale=plain, hint="first")
    entry = builder.emit("table", [first], shape, DType.INT16, attrs={"table": table}, rescale=plain, hint="entry")
    scaled = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32), 15, sum_bits=48)
    builder.output(builder.emit("mul", [entry, x], shape, DType.INT16, rescale=scaled, hint="product"))
    return builder.finish()


def test_a_band_runs_the_program_of_the_band_before() -> None:
    graph, config = chain(), NpuConfig()
    plan = schedule(graph, config)
    assert plan.groups and len(plan.groups[0].bands) > 2
    shared, apart = (generate(graph, plan, config, disabled=off) for off in ((), ("share-programs",)))
    (saved,) = (entry.saved for entry in shared.ledger if entry.name == "share-programs")
    loaded = [sum(layer.get("in_program", 0) for layer in g.layer_bytes.values()) for g in (shared, apart)]
    assert saved["in_bytes"] == loaded[1] - loaded[0] >= (len(plan.groups[0].bands) - 1) * 2048
    assert saved["out_bytes"] == 0


def test_results_stay_the_same() -> None:
    for budget in (0.3, 0.8):
        check_program(chain(300), NpuConfig(), budget=budget)
        check_program(chain(300), NpuConfig(), ("share-programs",), budget=budget)
