"""The cycle model against hand-computed numbers of the hardware's published cost formulas."""

from __future__ import annotations

import dataclasses
import math

import pytest
from msgspec import structs

from tests.npu_model import infra
from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, AluConfig, Engine, Op0, Op1, Role
from torq_byoc.npu_model.presets import preset
from torq_byoc.npu_model.timing import (
    Profile,
    dma_cycles,
    program_cycles,
    simulate_timeline,
    task_cycles,
)

CONFIG = NpuConfig()


@pytest.mark.parametrize("nbytes, cycles", [(0, 0), (1, 1), (640, 135), (400_000, 84_135), (131_072, 27_570)])
def test_transfer_cycles(nbytes, cycles):
    assert dma_cycles(nbytes, CONFIG) == cycles


@pytest.mark.parametrize("channels, size, outputs", [(16, 14, 16), (3, 6, 4), (64, 28, 8)])
def test_conv_costs_what_the_closed_form_says(channels, size, outputs):
    """ceil(OC/4) x ceil(H*W/V) x max(IC*KH*KW, 4*V/A) with V 64 and A 16 for int8."""
    task = infra.conv3x3(CONFIG, 2000, 100_000, 200_000, 210_000, (channels, size, size, outputs))
    expected = math.ceil(outputs / 4) * math.ceil(size * size / 64) * max(channels * 9, 16)
    assert task_cycles(task) == expected


@pytest.mark.parametrize("dtype, lanes", [(DType.INT8, 16), (DType.INT16, 16), (DType.BF16, 8)])
def test_an_element_wise_pass_runs_at_the_width_of_act(dtype, lanes):
    width = CONFIG.act_width(dtype, None)
    count = 6400
    nest = LoopNest(
        loops=(LoopSpec("n", count, Role.LANE),),
        data=Operand(4096, dtype, {"n": dtype.size}),
        result=Operand(65536, dtype, {"n": dtype.size}),
        alu=AluConfig(Op0.DBYP, Op1.BYP),
    )
    assert width <= lanes
    assert task_cycles(build(nest, CONFIG)) == count // width


def test_a_fill_costs_the_output_bus_alone():
    assert task_cycles(infra.fill(CONFIG, 4096, 640, 5)) == 10


def test_ref_and_cepw_do_not_count():
    task = infra.relu(CONFIG, 4096, 8192, 256)
    quick = structs.replace(task, ndls=tuple(n for n in task.ndls if n.agent not in (Agent.REF, Agent.CEPW)))
    assert task_cycles(task) == task_cycles(quick) == 16
    assert program_cycles((task, task)) == 32


def build_overlap(in_bytes: int, out_bytes: int):
    """One load and one store at once, after 475 bytes were loaded for the store (100 cycles)."""
    asm = infra.Assembler()
    x, y = asm.input("x", 475 + in_bytes), asm.output("y", out_bytes)
    asm.task(infra.load(0x1000, x, 475), infra.WAIT_IN)
    asm.task(infra.load(0x9000, x + 475, in_bytes), infra.store(0x1000, y, out_bytes), infra.WAIT_IN, infra.WAIT_OUT)
    return asm.finish()


def test_reference_directions_are_independent():
    line = simulate_timeline(build_overlap(951, 475), "reference")
    assert [(e.track, e.start, e.end, e.nbytes) for e in line.events] == [
        ("dma_in", 0, 100, 475),
        ("dma_in", 100, 301, 951),
        ("dma_out", 100, 200, 475),
    ]
    assert line.total_cycles == 301
    assert line.busy == {"dma_in": 301, "dma_out": 100, "slice0": 0, "slice1": 0}


def test_shared_directions_take_half_the_rate_while_both_run():
    line = simulate_timeline(build_overlap(951, 475), Profile.SHARED)
    # 100 + 201 cycles of work from t = 100: half rate for 200 cycles, then 101 more alone
    assert [(e.track, e.start, e.end) for e in line.events] == [
        ("dma_in", 0, 100),
        ("dma_in", 100, 401),
        ("dma_out", 100, 300),
    ]
    assert line.total_cycles == 401


def test_pessimistic_adds_a_fixed_cost_to_every_transfer():
    line = simulate_timeline(build_overlap(951, 475), Profile.PESSIMISTIC)
    assert [(e.start, e.end) for e in line.events] == [(0, 164), (164, 164 + 265 + 164), (164, 164 + 2 * 164)]


@pytest.mark.parametrize("name", infra.programs())
def test_profiles_are_ordered_and_engines_never_overlap_themselves(name):
    program = infra.programs()[name]
    lines = [simulate_timeline(program, profile) for profile in Profile]
    totals = [line.total_cycles for line in lines]
    assert totals == sorted(totals)
    for line in lines:
        assert len(line.events) == len(program.jobs)
        assert line.total_cycles == max(event.end for event in line.events)
        for track, cycles in line.busy.items():
            spans = sorted((e.start, e.end) for e in line.events if e.track == track)
            assert all(left[1] <= right[0] for left, right in zip(spans, spans[1:], strict=False))
            assert sum(end - start for start, end in spans) == cycles


def test_reference_timeline_by_hand():
    """Fetch both programs, load, run both slices at once, store both halves."""
    program = infra.sliced_conv()
    line = simulate_timeline(program)
    loads = [event for event in line.events if event.engine is Engine.DMA_IN]
    assert all(left.end == right.start for left, right in zip(loads, loads[1:], strict=False))
    first, second = (event for event in line.events if event.engine is Engine.SLICE)
    assert first.start == second.start == loads[-1].end
    assert first.end - first.start == 27  # 1 x 1 x max(3 * 9, 16) cycles
    assert line.both_slices_busy_cycles == line.slice_busy_cycles == 27
    store = next(event for event in line.events if event.engine is Engine.DMA_OUT)
    assert store.start == first.end


def test_starting_a_slice_takes_the_sequencer_a_cycle():
    asm = infra.Assembler()
    code = asm.program(infra.fill(asm.config, 0x2000, 64, 1))
    y = asm.output("y", 64)
    asm.task(asm.fetch(code, 0x3000), infra.WAIT_IN)
    asm.task(asm.run(0, code, 0x3000))
    asm.task(infra.load(0x4000, code, 10), infra.WAIT_IN)
    asm.task(infra.SLICE_WAITS[0])
    asm.task(infra.store(0x2000, y, 64), infra.WAIT_OUT)
    fetch, run, load, _ = simulate_timeline(asm.finish()).events
    assert (run.start, run.end) == (fetch.end, fetch.end + 1)
    assert load.start == fetch.end + 1


def test_hidden_fraction_counts_transfers_beside_running_slices():
    line = simulate_timeline(infra.double_buffered_relu(tiles=6, count=4096 // 2))
    hidden = sum(
        any(e.start <= t < e.end for e in line.events if e.engine is Engine.SLICE)
        and any(e.start <= t < e.end for e in line.events if e.engine is not Engine.SLICE)
        for t in range(line.total_cycles)
    )
    moving = sum(
        any(e.start <= t < e.end for e in line.events if e.engine is not Engine.SLICE) for t in range(line.total_cycles)
    )
    assert line.dma_busy_cycles == moving
    assert line.hidden_dma_fraction == pytest.approx(hidden / moving)


def test_a_faster_machine_is_faster():
    wide = dataclasses.replace(preset("sl2610"), name="wide", dma_peak=16.0)
    slow, fast = (simulate_timeline(infra.double_buffered_relu(config=c)).total_cycles for c in (CONFIG, wide))
    assert fast < slow
    with pytest.raises(ScheduleError, match="optimistic"):
        simulate_timeline(infra.double_buffered_relu(), "optimistic")


def test_a_profile_that_does_not_exist_is_refused_with_the_nearest():
    assert Profile.named("shared") is Profile.named(Profile.SHARED) is Profile.SHARED
    with pytest.raises(ScheduleError, match="there is no timing profile 'refrence'") as refusal:
        Profile.named("refrence")
    assert refusal.value.remedy.startswith("did you mean 'reference'?")
