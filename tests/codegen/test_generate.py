"""Generated programs: verified, bit-exact on every machine and pass setting, and what the passes buy."""

from dataclasses import replace

import pytest
from codegen.infra import check_program, residual_graph

from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.passes import NAMES
from torq_byoc.errors import ScheduleError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.presets import load_config
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.plan import schedule


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


def test_unknown_pass_is_named() -> None:
    graph, config = residual_graph(5), NpuConfig()
    with pytest.raises(ScheduleError, match="no pass 'dead-store'"):
        generate(graph, schedule(graph, config), config, disabled=("dead-store",))


def test_two_runs_give_the_same_bytes() -> None:
    graph, config = residual_graph(6), load_config("lram64")
    first, second = (generate(graph, schedule(graph, config, budget=0.8), config).program for _ in range(2))
    assert first.to_sections() == second.to_sections()
