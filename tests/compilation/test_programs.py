"""Several candidates: what is compiled is never slower than the same search without fused groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.infra import convolution
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.programs import schedule_and_generate
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.record import DecisionRecord

UNFUSED = DecisionRecord(groups=())


def _chain(layers: int, channels: int, extent: int) -> OpGraph:
    rng = np.random.default_rng(layers)
    builder = GraphBuilder("chain")
    x = builder.input("x", (1, 4, extent, extent), DType.INT8)
    for index in range(layers):
        x = convolution(builder, rng, x, channels, 3, 1, 1, f"conv{index}")
    builder.output(x)
    return builder.finish()


def _cycles(graph: OpGraph, options: Options) -> int:
    return simulate_timeline(schedule_and_generate(graph, options, StageClock())[1].program).total_cycles


@pytest.mark.parametrize(("layers", "channels", "extent", "kib"), [(2, 8, 24, 512), (3, 16, 40, 64), (4, 8, 12, 64)])
def test_fusing_never_loses_to_not_fusing(layers: int, channels: int, extent: int, kib: int) -> None:
    graph = _chain(layers, channels, extent)
    options = Options(config=replace(NpuConfig(), lram_bytes=kib << 10))
    assert _cycles(graph, options) <= _cycles(graph, replace(options, decisions=UNFUSED))


def test_what_was_chosen_comes_back_from_its_record() -> None:
    graph = _chain(3, 16, 40)
    options = Options(config=replace(NpuConfig(), lram_bytes=64 << 10))
    plan, generated = schedule_and_generate(graph, options, StageClock())
    again, same = schedule_and_generate(graph, replace(options, decisions=plan.record), StageClock())
    assert again.record == plan.record
    assert same.program.to_sections() == generated.program.to_sections()


def test_the_observer_sees_one_candidate_only() -> None:
    seen: list[str] = []
    options = Options(config=NpuConfig(), observe=lambda level, text: seen.append(level))
    schedule_and_generate(_chain(2, 8, 24), options, StageClock())
    assert len(seen) == len(set(seen)) > 3
