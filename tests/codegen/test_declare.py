"""Declarations hold code generation to torq_hl: a buffer in the wrong place is found, though seals are made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from tests.codegen.infra import residual_graph
from torq_byoc.codegen.arrangements import order_dependencies
from torq_byoc.codegen.build import build
from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.hl import BufferKind
from torq_byoc.codegen.lower import lower
from torq_byoc.codegen.memory import memory_map
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.prefetch import order
from torq_byoc.codegen.programs import with_programs
from torq_byoc.codegen.result_places import ResultPlacer
from torq_byoc.codegen.share_programs import slice_programs
from torq_byoc.errors import TorqError
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.presets import preset
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import check
from torq_byoc.schedules.plan import schedule

CONFIG = preset("lram64")


def test_every_job_says_what_it_touches():
    graph = residual_graph(1)
    program = generate(graph, schedule(graph, CONFIG, budget=0.8), CONFIG).program
    assert len(program.seal) == 16
    for job in program.jobs:
        assert len(job.seal) == 16
        spaces = [{program.buffers[number].space for number in numbers} for numbers in (job.reads, job.writes)]
        if job.kind == "slice":
            assert spaces == [{"lram"}, {"lram"}]
        elif job.kind == "output":
            assert spaces == [{"lram"}, {"xram"}]
        elif job.kind in ("weights", "program", "input"):
            assert spaces == [{"xram"}, {"lram"}]
    assert {job.kind for job in program.jobs} >= {"slice", "weights", "program"}


def faulty_programs(seed: int) -> Iterator[tuple[Program, bool, bool]]:
    """Programs with one LRAM buffer moved onto another one, whether one of the two held a slice program, and
    whether they compute something else."""
    rng = np.random.default_rng(seed)
    graph = residual_graph(seed)
    plan = schedule(graph, CONFIG, budget=0.8)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    hl = with_programs(improved, graph, CONFIG)
    ordered = order(ResultPlacer(Needs.of(hl, CONFIG), CONFIG.lram_usable))
    inputs = {name: rng.integers(-128, 128, graph.tensors[name].shape).astype(np.int8) for name in graph.inputs}
    expected = evaluate(graph, inputs)
    for _ in range(40):
        moved, target = (int(index) for index in rng.choice(list(ordered.offsets), 2, replace=False))
        code = any(hl.buffers[index].kind is BufferKind.PROGRAM for index in (moved, target))
        faulty = dataclasses.replace(ordered, offsets={**ordered.offsets, moved: ordered.offsets[target]})
        try:
            images = slice_programs(faulty, CallImages(hl, graph, CONFIG))
            program = lower(
                faulty.program, memory_map(faulty, CONFIG), order_dependencies(faulty), images, graph, CONFIG
            ).program
        except TorqError:  # two operands in one place can shorten a program, which is noticed here
            continue
        try:
            found = Simulator(program).run(inputs)
            yield program, code, any(not np.array_equal(found[name], expected[name]) for name in graph.outputs)
        except TorqError:
            yield program, code, True


def test_a_buffer_on_top_of_another_is_found_whenever_it_matters():
    changed = by_buffers_alone = 0
    for seed in range(3):
        for program, code, differs in faulty_programs(seed):
            rules = {violation.rule for violation in check(program)}
            assert code or "seal" not in rules  # the seals are made from the faulty addresses
            assert rules or not differs
            changed += differs
            by_buffers_alone += differs and rules == {"buffer"}
    assert changed >= 30
    assert by_buffers_alone >= 3
