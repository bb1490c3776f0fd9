"""Sequencer blocks and slice programs as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torq_byoc.errors import CommandLineError, choose_from
from torq_byoc.npu_model.isa import AluConfig, DimKind, Engine, Ndl, NdlDim, SliceTask, StartDma, StartSlice
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.timing import program_cycles, task_cycles, track_name
from torq_byoc.npu_model.trace import Job, Step, trace


def disassemble(program: Program, layer: str = "") -> Iterator[str]:
    """Lines of the program in execution order: blocks, steps, starts, tasks, descriptors, waits.

    Args:
        program: a verified program.
        layer: only steps that start a job of a layer whose name contains this; all when empty.
    """
    block = -1
    for number, step in enumerate(trace(program)):
        if layer and not any(layer in program.jobs[job.index].label for job in step.jobs):
            continue
        if step.block != block:
            block = step.block
            where = program.blocks[block]
            yield f"block {block}: {where.size} B at {where.address:#x}, runs from slot {where.slot}"
        yield from _step(program, number, step)


def require_layer(programs: Iterable[Program], layer: str) -> None:
    """Refuse a name that no job of any program has in its label.

    Raises:
        CommandLineError: names the nearest layer.
    """
    labels = list(dict.fromkeys(job.label for program in programs for job in program.jobs if job.label))
    if not any(layer in label for label in labels):
        remedy = choose_from(layer, labels) if labels else "nothing of this model runs on the NPU"
        raise CommandLineError(f"there is no layer {layer!r}", where="torq inspect --layer", remedy=remedy)


def _step(program: Program, number: int, step: Step) -> Iterator[str]:
    yield f"  step {number}"
    for job in step.jobs:
        yield from _job(program, job)
    waits = " ".join(track_name(wait.engine, wait.slice_index) for wait in step.waits)
    if waits:
        yield f"    wait  {waits}"


def _job(program: Program, job: Job) -> Iterator[str]:
    info = program.jobs[job.index]
    what = f"{info.label or 'sequencer'} ({info.kind})"
    if isinstance(job.start, StartSlice):
        start = job.start
        cost = f"{start.size} B at {start.address:#x}, {program_cycles(job.tasks)} cycles"
        yield f"    start slice{start.slice_index}  {what}  {cost}"
        for index, task in enumerate(job.tasks):
            yield from _task(index, task)
    else:
        yield f"    start {_transfer(job.start)}  {what}"


def _transfer(start: StartDma) -> str:
    descriptor = start.descriptor
    xram = f"xram {descriptor.xram:#x}"
    shape = "".join(f" x {count} every {stride}" for count, stride in descriptor.dims)
    lram = f"lram {descriptor.lram:#x}"
    source, target = (xram, lram) if start.engine is Engine.DMA_IN else (lram, xram)
    return f"{start.engine.value}  {source} -> {target}  {descriptor.run} B{shape}"


def _alu(alu: AluConfig) -> str:
    return f"{alu.op0.name} {alu.op1.name}" + ("" if alu.clear else " from PRAM") + ("" if alu.output else " to PRAM")


def _task(index: int, task: SliceTask) -> Iterator[str]:
    alu = _alu(task.alu) if task.alu else f"fill {task.fill_value}"
    act = task.act
    yield (
        f"      task {index}: {task_cycles(task)} cycles, {alu}, vector {task.vector} x {task.weights}, "
        f"{act.mode.name} shift {act.shift} {act.rounding.name} zero point {act.zero_point} "
        f"clip {act.clip_min}..{act.clip_max}"
    )
    loops = ", ".join(
        f"{n}:{loop.tag.name.lower()}[{loop.extent}] {loop.role.name.lower()}" for n, loop in enumerate(task.loops)
    )
    yield f"        loops {loops}"
    for part in (task.plane, task.window):
        if part is not None:
            yield f"        {part}"
    for ndl in task.ndls:
        yield f"        {_descriptor(ndl)}"


def _descriptor(ndl: Ndl) -> str:
    dims = " ".join(_dim(dim) for dim in ndl.dims)
    base = f" at {ndl.base:#x}" if ndl.base else ""
    return f"{ndl.agent.name:4} {ndl.dtype.value}{base}  {dims}  [{ndl.cycles()} cycles]"


def _dim(dim: NdlDim) -> str:
    step = f"/{dim.step}" if dim.step != 1 else ""
    stride = f"+{dim.stride}" if dim.stride else ""
    return f"{'' if dim.kind is DimKind.H else dim.kind.name}{dim.loop}:{dim.count}{step}{stride}"
