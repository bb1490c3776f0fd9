"""Several orders of one program: each is laid out without overlaps, and its price is that of the machine."""

from __future__ import annotations

import dataclasses

import pytest
from codegen.infra import check_places, residual_graph

from torq_byoc.codegen import arrangements
from torq_byoc.codegen.arrangements import ARRANGEMENTS, arranged, order_cycles, order_dependencies
from torq_byoc.codegen.build import build
from torq_byoc.codegen.bytes_first import FITS
from torq_byoc.codegen.clean_copies import clean_copies
from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.hl import Effect, Load, SliceRun, Space
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.placement import Early
from torq_byoc.codegen.programs import with_programs
from torq_byoc.errors import LramOverflowError
from torq_byoc.npu_model.presets import preset
from torq_byoc.schedules.plan import schedule

CONFIG = preset("lram64")


def in_steps(seed: int):
    """A program before its loads are ordered, and the schedule and graph behind it."""
    graph = residual_graph(seed, channels=24)
    plan = schedule(graph, CONFIG, budget=0.8)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    return graph, plan, with_programs(improved, graph, CONFIG)


@pytest.mark.parametrize("seed", range(4))
def test_no_two_buffers_share_a_byte_at_one_time(seed):
    program = in_steps(seed)[2]
    orders = list(arranged(program, CONFIG, Early(), clean_copies(program)))
    assert 1 < len(orders) <= len(ARRANGEMENTS) + len(FITS) + 1  # with those by bytes
    for ordered in orders:
        check_places(program, ordered, CONFIG)


def test_long_programs_are_arranged_in_fewer_ways(monkeypatch):
    program = in_steps(0)[2]
    copies, by_bytes = clean_copies(program), len(FITS) + 1
    every = len(list(arranged(program, CONFIG, Early(), copies)))
    monkeypatch.setattr(arrangements, "FEW_OPS", len(program.ops) - 1)
    few = len(list(arranged(program, CONFIG, Early(), copies)))
    monkeypatch.setattr(arrangements, "RIVAL_OPS", len(program.ops) - 1)
    one = len(list(arranged(program, CONFIG, Early(), copies)))
    assert one < few < every <= len(ARRANGEMENTS) + by_bytes
    assert one <= 1 + by_bytes


@pytest.mark.parametrize("seed", range(4))
def test_every_buffer_is_loaded_before_it_is_read(seed):
    program = in_steps(seed)[2]
    for ordered in arranged(program, CONFIG, Early(), clean_copies(program)):
        written = set()
        for op in ordered.program.ops:
            if isinstance(op, SliceRun):
                assert {access.buffer for access in op.accesses if access.effect is Effect.READ} <= written
                written |= {access.buffer for access in op.accesses if access.effect is Effect.WRITE}
            elif isinstance(op, Load):
                written.add(op.target.buffer)


@pytest.mark.parametrize("seed", range(4))
def test_the_price_of_the_best_order_is_what_the_program_takes_without_the_sequencer(seed):
    graph, plan, program = in_steps(seed)
    best = min(
        order_cycles(ordered, order_dependencies(ordered))
        for ordered in arranged(program, CONFIG, Early(), clean_copies(program))
    )
    generated = generate(graph, plan, CONFIG, disabled=("share-programs",))
    total, blocks = generated.timeline.total_cycles, len(generated.program.blocks)
    assert best <= total <= best + 150 * (blocks + 1)


def test_without_room_the_remedy_is_named():
    program = in_steps(0)[2]
    largest = max(buffer.nbytes for buffer in program.buffers if buffer.space is Space.LRAM)
    small = dataclasses.replace(CONFIG, name="small", lram_bytes=CONFIG.lram_reserve + largest)
    with pytest.raises(LramOverflowError, match="cannot be laid out in LRAM together"):
        list(arranged(program, small, Early(), {}))
