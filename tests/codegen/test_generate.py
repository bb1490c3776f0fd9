"""Generated programs: verified, bit-exact on every machine and pass setting, and what the passes buy."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.infra import check_program, convolution, residual_graph

from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.passes import NAMES
from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.presets import load_config
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


@pytest.mark.parametrize("preset", ["sl2610", "sl2610-1slice", "4slice", "lram64"])
def test_bit_exact_on_every_machine(preset: str) -> None:
    check_program(residual_graph(1), load_config(preset))


@pytest.mark.parametrize(
    "disabled", [*((name,) for name in NAMES), ("loop-invariant", "prefetch"), ("fusion", "residency"), NAMES]
)
def test_bit_exact_with_passes_off(disabled: tuple[str, ...]) -> None:
    check_program(residual_graph(2), load_config("lram64"), disabled)


def test_tiny_memory_forces_tiles() -> None:
    config = replace(NpuConfig(), name="tiny", lram_bytes=24 * 1024)
    generated = check_program(residual_graph(3, size=33), config, budget=0.6)
    assert generated.lram_peak <= config.lram_bytes


def test_prefetch_overlaps_loads_with_work() -> None:
    graph, config = residual_graph(4, channels=32, size=33), load_config("lram64")
    plan = schedule(graph, config, budget=0.8)
    serial = simulate_timeline(generate(graph, plan, config, disabled=("prefetch",)).program)
    overlapped = simulate_timeline(generate(graph, plan, config).program)
    assert overlapped.total_cycles < serial.total_cycles


def test_what_follows_the_last_tile_of_a_node_does_not_wait_for_its_store() -> None:
    """51,200 bytes of a result take 10,770 cycles to XRAM, far longer than the layers that read it take."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("stored")
    kept = convolution(builder, rng, builder.input("x", (1, 32, 40, 40), DType.INT8), 32, 1, 1, 0, "kept")
    small = convolution(builder, rng, kept, 8, 1, 1, 0, "small")
    builder.output(kept)
    builder.output(convolution(builder, rng, small, 8, 1, 1, 0, "next"))
    graph, config = builder.finish(), NpuConfig()
    whole = {node.name: NodeOverride(tile=graph.tensors[node.output].shape) for node in graph.nodes}
    generated = generate(graph, schedule(graph, config, overrides=DecisionRecord(whole, groups=())), config)
    jobs = generated.program.jobs
    stored = next(e.end for e in generated.timeline.events if e.track == "dma_out" and jobs[e.job].label == "kept")
    ends = [e.end for e in generated.timeline.events if e.track.startswith("slice")]
    assert stored - 9000 > max(ends) and len(ends) == 6


def test_unknown_pass_is_named() -> None:
    graph, config = residual_graph(5), NpuConfig()
    with pytest.raises(ScheduleError, match="no pass 'dead-store'"):
        generate(graph, schedule(graph, config), config, disabled=("dead-store",))


def test_two_runs_give_the_same_bytes() -> None:
    graph, config = residual_graph(6), load_config("lram64")
    first, second = (generate(graph, schedule(graph, config, budget=0.8), config).program for _ in range(2))
    assert first.to_sections() == second.to_sections()
