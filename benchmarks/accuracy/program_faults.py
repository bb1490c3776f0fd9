"""Faults in the bytes of programs: what code generation and tiling might get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from benchmarks.accuracy.fault import Fault
from benchmarks.accuracy.fault_subjects import Subject
from benchmarks.accuracy.program_editor import ProgramEditor, permuted, with_program
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.intent import Intent, layer_name
from torq_byoc.codegen.hl import Load, SliceRun, Store
from torq_byoc.kernels.graph import Node
from torq_byoc.kernels.kernel import PackedConstant, kernel_for
from torq_byoc.npu_model.isa import ActMode, Agent, SliceTask, StartDma

Change = Callable[[SliceTask, np.random.Generator], SliceTask | None]
"""Another task in place of one; None where the fault cannot be made in it."""


@dataclass(frozen=True, eq=False)
class _Site:
    """A program of a subject, open for changes."""

    subject: Subject
    symbol: str
    intent: Intent
    editor: ProgramEditor

    @classmethod
    def of(cls, subject: Subject, rng: np.random.Generator) -> _Site:
        symbol = str(rng.choice(sorted(subject.intents)))
        return cls(subject, symbol, subject.intents[symbol], ProgramEditor(subject.intents[symbol]))

    def fault(self, kind: str, stage: Stage, node: str, where: str) -> Fault:
        """The fault after the change."""
        stages = with_program(self.subject.stages, self.symbol, self.editor.finish())
        return Fault(kind, stage, (layer_name(self.intent.nodes[node]),), where, stages)


def _in_tasks(kind: str, stage: Stage, change: Change) -> Callable[[Subject, np.random.Generator], Fault | None]:
    """An injector that changes the tasks of one slice program."""

    def inject(subject: Subject, rng: np.random.Generator) -> Fault | None:
        site = _Site.of(subject, rng)
        codes = site.editor.codes()
        code = codes[int(rng.integers(len(codes)))]
        nodes = {site.intent.jobs[job].node for job in code.jobs}  # type: ignore[union-attr]
        if len(nodes) > 1:
            return None
        before = site.editor.tasks(code)
        seed = int(rng.integers(1 << 32))
        after = [change(task, np.random.default_rng(seed)) or task for task in before]
        if after == list(before):
            return None
        site.editor.replace_tasks(code, after)
        (node,) = nodes
        return site.fault(kind, stage, node, f"{node}, {_changed(before, after)}, {len(code.jobs)} jobs")

    return inject


def _changed(before: Sequence[SliceTask], after: Sequence[SliceTask]) -> str:
    old, new = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
    return (
        ", ".join(
            f"{name}: {str(getattr(old, name))[:60]} -> {str(getattr(new, name))[:60]}"
            for name in old.__struct_fields__
            if getattr(old, name) != getattr(new, name) and name != "ndls"
        )
        or "descriptors"
    )


def _wrong_shift(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
    if task.alu is None or task.act.mode not in (ActMode.ACT, ActMode.TABLE) or not task.act.shift:
        return None
    return replace(task, act=replace(task.act, shift=task.act.shift + int(rng.choice([-1, 1]))))


def _no_zero_point(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
    del rng
    return replace(task, act=replace(task.act, zero_point=0)) if task.alu and task.act.zero_point else None


def _no_border_zero_point(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
    del rng
    return replace(task, plane=replace(task.plane, pad_value=0)) if task.plane and task.plane.pad_value else None


def _wrong_clip(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
    low, high = task.act.clip_min, task.act.clip_max
    if task.alu is None or not (np.isfinite(low) and np.isfinite(high)) or high - low < 8:
        return None
    middle = int(low + high) // 2
    clip = {"clip_max": middle} if rng.random() < 0.5 else {"clip_min": middle}
    return replace(task, act=replace(task.act, **clip))


def _shifted_operand(agent: Agent) -> Change:
    """One element further on."""

    def change(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
        ndl = task.ndl(agent)
        if ndl is None or task.alu is None:
            return None
        base = ndl.base + int(rng.choice([-1, 1])) * ndl.dtype.size
        return replace(task, ndls=tuple(replace(n, base=base) if n is ndl else n for n in task.ndls))

    return change


def _shifted_border(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
    if task.plane is None:
        return None
    field = str(rng.choice(["pad_top", "pad_left"]))
    return replace(task, plane=replace(task.plane, **{field: getattr(task.plane, field) + int(rng.choice([-1, 1]))}))


def _narrow_plane(task: SliceTask, rng: np.random.Generator) -> SliceTask | None:
    if task.plane is None or task.plane.height < 2:
        return None
    del rng
    return replace(task, plane=replace(task.plane, height=task.plane.height - 1))


def _other_buffer(subject: Subject, rng: np.random.Generator) -> Fault | None:
    """A task reads the other buffer of a pair."""
    site = _Site.of(subject, rng)
    codes = site.editor.codes()
    code = codes[int(rng.integers(len(codes)))]
    op = site.intent.jobs[code.jobs[0]]
    assert isinstance(op, SliceRun)
    own = _addresses(site.intent, op)
    pairs = [
        (mine, theirs)
        for other in site.intent.jobs
        if isinstance(other, SliceRun) and other.node == op.node
        for mine, theirs in zip(own, _addresses(site.intent, other), strict=True)
        if mine != theirs and mine >= 0 and theirs >= 0
    ]
    if not pairs:
        return None
    mine, theirs = pairs[int(rng.integers(len(pairs)))]
    after = [_moved_reads(task, mine, theirs - mine) for task in site.editor.tasks(code)]
    if after == list(site.editor.tasks(code)) or not _stays_inside(after, site.intent):
        return None
    site.editor.replace_tasks(code, after)
    return site.fault("stale buffer", Stage.TILING, op.node, f"{op.node} reads at {theirs} what lies at {mine}")


def _addresses(intent: Intent, op: SliceRun) -> list[int]:
    """Where the buffers of a call's operands begin."""
    buffers = [operand.buffer for operand in op.invocation.inputs]
    buffers += [constant.buffer for constant in op.invocation.constants]
    return [intent.address.get(buffer, -1) for buffer in buffers]


def _moved_reads(task: SliceTask, start: int, distance: int) -> SliceTask:
    readers = (Agent.DEDR, Agent.DEWR, Agent.DEBR)
    nearest = [ndl for ndl in task.ndls if ndl.agent in readers and ndl.base >= start]
    chosen = min(nearest, key=lambda ndl: ndl.base, default=None)
    if chosen is None:
        return task
    return replace(task, ndls=tuple(replace(n, base=n.base + distance) if n is chosen else n for n in task.ndls))


def _stays_inside(tasks: Sequence[SliceTask], intent: Intent) -> bool:
    limit = intent.program.config.lram_bytes
    return all(0 <= ndl.base < limit for task in tasks for ndl in task.ndls)


def _left_out_load(subject: Subject, rng: np.random.Generator) -> Fault | None:
    """A load or reload that does not happen."""
    site = _Site.of(subject, rng)
    loads = [job for job, op in enumerate(site.intent.jobs) if isinstance(op, Load)]
    job = int(rng.choice(loads))
    op = site.intent.jobs[job]
    assert isinstance(op, Load)
    site.editor.change_start(job, lambda start: None)
    kind = site.intent.program.jobs[job].kind
    readers = [
        other.node
        for other in site.intent.jobs[job:]
        if isinstance(other, SliceRun) and any(access.buffer == op.target.buffer for access in other.accesses)
    ]
    where = f"load of {kind} for {op.node}, job {job}"
    return site.fault("stale buffer", Stage.TILING, (readers or [op.node])[0], where)


def _shifted_transfer(subject: Subject, rng: np.random.Generator) -> Fault | None:
    """A transfer of a tile moves its neighbour: off by one row, column or element."""
    site = _Site.of(subject, rng)
    jobs = [
        job
        for job, op in enumerate(site.intent.jobs)
        if (isinstance(op, Load) and op.source.tensor) or isinstance(op, Store)
    ]
    job = int(rng.choice(jobs))
    op = site.intent.jobs[job]
    assert isinstance(op, Load | Store)
    tensor = op.source.tensor or op.target.tensor
    info = site.intent.graph.tensors[tensor]
    steps = [info.dtype.size, *(stride for _, stride in op.transfer.dims), info.shape[-1] * info.dtype.size]
    step = int(rng.choice(steps)) * int(rng.choice([-1, 1]))

    def change(start: object) -> StartDma:
        assert isinstance(start, StartDma)
        return replace(start, descriptor=replace(start.descriptor, xram=start.descriptor.xram + step))

    site.editor.change_start(job, change)  # type: ignore[arg-type]
    kind = "load" if isinstance(op, Load) else "store"
    return site.fault("tile off by one", Stage.TILING, op.node, f"{kind} of {tensor} for {op.node}, {step} bytes")


def _constants(site: _Site) -> Iterator[tuple[str, PackedConstant, int]]:
    """Packed constants of a program: node, constant, and where in XRAM its image begins."""
    config, seen = site.intent.program.config, set()
    targets = {op.target.buffer: op for op in site.intent.jobs if isinstance(op, Load)}
    for op in site.intent.jobs:
        if not isinstance(op, SliceRun) or op.node in seen:
            continue
        seen.add(op.node)
        node = site.intent.nodes[op.node]
        constants = kernel_for(node.op).constants(site.intent.graph, node, config)
        for constant, place in zip(constants, op.invocation.constants, strict=True):
            if place.buffer in targets:
                yield op.node, constant, site.intent.address[targets[place.buffer].source.buffer]


def _in_constant(
    kind: str,
    wanted: Callable[[Node, PackedConstant], bool],
    change: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> Callable[[Subject, np.random.Generator], Fault | None]:
    """An injector that changes the image of a packed constant."""

    def inject(subject: Subject, rng: np.random.Generator) -> Fault | None:
        site = _Site.of(subject, rng)
        places = [place for place in _constants(site) if wanted(site.intent.nodes[place[0]], place[1])]
        if not places:
            return None
        node, constant, address = places[int(rng.integers(len(places)))]
        changed = change(constant.data.copy(), rng)
        if np.array_equal(changed, constant.data):
            return None
        site.editor.write(address, np.ascontiguousarray(changed).tobytes())
        return site.fault(kind, Stage.CODE_GENERATION, node, f"{constant.name} of {node}")

    return inject


def _is_pairs(node: Node, constant: PackedConstant) -> bool:
    """Whether it holds a bias and a scale a channel."""
    has_scales = node.rescale is not None and node.rescale.scale is not None
    return has_scales and constant.name in ("pairs", "bias") and constant.data.size >= 16


def _is_weights(node: Node, constant: PackedConstant) -> bool:
    return constant.name == "weights" and constant.data.size >= 4


def _swapped_scales(data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    pairs = data.reshape(-1).view(np.int32).reshape(-1, 2)
    first, second = rng.choice(len(pairs), 2, replace=False)
    pairs[[first, second], 1] = pairs[[second, first], 1]
    return data


def _shuffled(data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    flat = data.reshape(-1)
    return flat[permuted(rng, flat.size)].reshape(data.shape)


def _swapped_granules(data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if len(data) < 2:
        return data
    first, second = rng.choice(len(data), 2, replace=False)
    data[[first, second]] = data[[second, first]]
    return data


CODE_GENERATION = (
    _in_tasks("shift wrong", Stage.CODE_GENERATION, _wrong_shift),
    _in_tasks("zero point dropped", Stage.CODE_GENERATION, _no_zero_point),
    _in_tasks("zero point dropped", Stage.CODE_GENERATION, _no_border_zero_point),
    _in_tasks("clip wrong", Stage.CODE_GENERATION, _wrong_clip),
    _in_constant("scale swapped", _is_pairs, _swapped_scales),
    _in_constant("weights permuted", _is_weights, _shuffled),
    _in_constant("channels swapped", _is_weights, _swapped_granules),
)
TILING = (
    _in_tasks("tile off by one", Stage.TILING, _shifted_operand(Agent.DEDR)),
    _in_tasks("tile off by one", Stage.TILING, _shifted_operand(Agent.DEQW)),
    _in_tasks("tile off by one", Stage.TILING, _shifted_border),
    _in_tasks("tile off by one", Stage.TILING, _narrow_plane),
    _shifted_transfer,
    _left_out_load,
    _left_out_load,
    _other_buffer,
)
