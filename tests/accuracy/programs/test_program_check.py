"""Programs held against their graphs: nothing to say of right ones, and layer and class of defects of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replace_field
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.accuracy.fault_subjects import Subject, subjects
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.intent import align, intent_of
from torq_byoc.accuracy.programs.program_check import program_deviations
from torq_byoc.accuracy.stages import stages_of
from torq_byoc.codegen.hl import Load, SliceRun
from torq_byoc.compiler import compile_model
from torq_byoc.kernels.conv2d import Conv2d
from torq_byoc.npu_model.isa import Agent, SliceTask
from torq_byoc.schedules.record import DecisionRecord

CLEAN = ("digits int8", "residual int8 little", "depthwise bf16 little", "attention int8", "concat_head int8 little")


def _subject(name: str) -> Subject:
    return next(iter(subjects(name)))


@pytest.mark.parametrize("name", [*CLEAN, "fallback int8 little", "fallback bf16 little"])
def test_nothing_is_wrong_with_right_programs(name: str) -> None:
    subject = _subject(name)
    for sample in subject.samples:
        assert program_deviations(subject.stages, sample) == ()


def test_weights_are_those_of_the_slices_that_a_layer_may_use() -> None:
    """With one slice, channels are packed in other blocks than with all."""
    subject = _subject("residual int8 little")
    decisions = subject.stages.compiled.decisions()
    nodes = {*decisions.nodes, *(name for group in decisions.groups or () for name in group.nodes)}
    options = replace_field(subject.stages.options, decisions=DecisionRecord(slices=dict.fromkeys(nodes, 1)))
    stages = stages_of(subject.stages.original, options, name="one slice")
    assert set(stages.compiled.decisions().slices) == nodes
    assert program_deviations(stages, subject.samples[0]) == ()


def test_nothing_is_wrong_where_fewer_slices_turn_out_to_be_faster() -> None:
    subject = _subject("depthwise bf16 little")
    assert set(subject.stages.compiled.decisions().slices.values()) == {1}
    assert program_deviations(subject.stages, subject.samples[0]) == ()


def test_passes_that_a_program_was_made_without_are_left_out_again() -> None:
    subject = _subject("residual int8 little")
    options = replace_field(subject.stages.options, disabled_passes=("fusion", "prefetch", "in-place"))
    plain = compile_model(subject.stages.original, options, name="plain")
    stages = stages_of(subject.stages.original, subject.stages.options, name="plain", compiled=plain)
    assert plain.partitions[0].program != subject.stages.compiled.partitions[0].program
    assert program_deviations(stages, subject.samples[0]) == ()


def test_a_compilation_with_the_programs_own_decisions_says_what_every_job_is_for() -> None:
    subject = _subject("residual int8 little")
    (partition,) = subject.stages.compiled.partitions
    graph = subject.stages.graphs[partition.facts.symbol]
    intent = intent_of(graph, subject.stages.compiled.decisions(), subject.stages.options)
    assert intent.program == partition.program
    assert len(intent.jobs) == len(partition.program.jobs)
    for op, job in zip(intent.jobs, partition.program.jobs, strict=True):
        assert (op.node if op else "") == job.label
        if isinstance(op, SliceRun):
            assert job.kind == "slice"
    alignment = align(intent, partition.program)
    assert alignment is not None
    assert alignment.meant == tuple(range(len(intent.jobs)))
    assert alignment.absent == ()


Tasks = Callable[..., list[SliceTask]]


def _defect(monkeypatch: pytest.MonkeyPatch, change: Callable[[SliceTask], SliceTask]) -> None:
    """Let the convolution kernel give other tasks for the layer conv1."""
    right: Tasks = Conv2d.tasks

    def wrong(self: Conv2d, graph: Any, node: Any, *arguments: Any) -> list[SliceTask]:
        tasks = right(self, graph, node, *arguments)
        return [change(task) if task.alu else task for task in tasks] if "conv1" in node.name else tasks

    monkeypatch.setattr(Conv2d, "tasks", wrong)


def _one_bit_less(task: SliceTask) -> SliceTask:
    return replace(task, act=replace(task.act, shift=task.act.shift - 1))


def _one_byte_further(task: SliceTask) -> SliceTask:
    return replace(task, ndls=tuple(replace(n, base=n.base + 1) if n.agent is Agent.DEQW else n for n in task.ndls))


@pytest.mark.parametrize(
    ("change", "stage"), [(_one_bit_less, Stage.CODE_GENERATION), (_one_byte_further, Stage.TILING)]
)
def test_a_defect_of_a_kernel_is_local_to_its_layer_and_inherited_by_those_behind(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[SliceTask], SliceTask], stage: Stage
) -> None:
    _defect(monkeypatch, change)
    monkeypatch.setattr("torq_byoc.compilation.programs.verify", lambda *_: None)
    subject = _subject("concat_head int8")
    found = program_deviations(subject.stages, subject.samples[0])
    assert (found[0].stage, found[0].node, found[0].local) == (stage, "relu1", True)
    inherited = {deviation.node for deviation in found if not deviation.local}
    assert inherited >= {"box", "class", "last"}
    assert "relu0" not in {deviation.node for deviation in found}


def test_a_load_that_the_compiler_forgets_shows_at_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intent comes from the same defective compiler: the operand is wrong where it is read, all the same."""
    import torq_byoc.codegen.generate as generate

    right = generate.run_passes
    dropped: list[Load] = []

    def forgetful(program: Any, *arguments: Any) -> Any:
        improved, ledger = right(program, *arguments)
        loads = [op for op in improved.ops if isinstance(op, Load) and op.source.tensor and op.tile == 1]
        dropped[:] = loads[:1]
        return improved.with_ops(op for op in improved.ops if not loads or op is not loads[0]), ledger

    monkeypatch.setattr(generate, "run_passes", forgetful)
    monkeypatch.setattr("torq_byoc.compilation.programs.verify", lambda *_: None)
    subject = _subject("fallback bf16 little")
    found = program_deviations(subject.stages, subject.samples[0])
    assert dropped
    assert (found[0].stage, found[0].local) == (Stage.TILING, True)
    assert "stale buffer" in found[0].cause or "left out" in found[0].cause
