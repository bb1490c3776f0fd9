"""Broken variants of a program: each mutator changes one thing, as a faulty compiler would."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from msgspec import structs

from tests.npu_model.infra import Assembler
from torq_byoc.npu_model.encoding import decode_slice_program, encode_slice_program
from torq_byoc.npu_model.isa import Agent, SliceTask, StartDma, StartSlice

Mutator = Callable[[Assembler, np.random.Generator], bool]


def _pick(rng: np.random.Generator, items: list):
    return items[rng.integers(len(items))] if items else None


def _starts(asm: Assembler, kind: type) -> list[tuple[int, int]]:
    return [
        (number, place)
        for number, task in enumerate(asm.tasks)
        for place, start in enumerate(task.starts)
        if isinstance(start, kind)
    ]


def _replace_start(asm: Assembler, where: tuple[int, int], start) -> bool:
    number, place = where
    task = asm.tasks[number]
    changed = (*task.starts[:place], start, *task.starts[place + 1 :])
    asm.tasks[number] = structs.replace(task, starts=changed)
    return start != task.starts[place]


def _change_descriptor(asm: Assembler, rng: np.random.Generator, change) -> bool:
    where = _pick(rng, _starts(asm, StartDma))
    start = asm.tasks[where[0]].starts[where[1]]
    fields = change(start.descriptor)
    if fields is None:
        return False
    return _replace_start(asm, where, structs.replace(start, descriptor=structs.replace(start.descriptor, **fields)))


def drop_wait(asm: Assembler, rng: np.random.Generator) -> bool:
    number = _pick(rng, [n for n, task in enumerate(asm.tasks) if task.waits])
    task = asm.tasks[number]
    gone = rng.integers(len(task.waits))
    asm.tasks[number] = structs.replace(task, waits=(*task.waits[:gone], *task.waits[gone + 1 :]))
    return True


def drop_start(asm: Assembler, rng: np.random.Generator) -> bool:
    number, place = _pick(rng, _starts(asm, object))
    task = asm.tasks[number]
    asm.tasks[number] = structs.replace(task, starts=(*task.starts[:place], *task.starts[place + 1 :]))
    return True


def repeat_start(asm: Assembler, rng: np.random.Generator) -> bool:
    number, place = _pick(rng, _starts(asm, object))
    other = int(rng.integers(len(asm.tasks)))
    task = asm.tasks[other]
    asm.tasks[other] = structs.replace(task, starts=(*task.starts, asm.tasks[number].starts[place]))
    return True


def start_earlier(asm: Assembler, rng: np.random.Generator) -> bool:
    where = _pick(rng, [w for w in _starts(asm, object) if w[0] > 0])
    start = asm.tasks[where[0]].starts[where[1]]
    drop = asm.tasks[where[0]].starts
    asm.tasks[where[0]] = structs.replace(asm.tasks[where[0]], starts=(*drop[: where[1]], *drop[where[1] + 1 :]))
    before = asm.tasks[where[0] - 1]
    asm.tasks[where[0] - 1] = structs.replace(before, starts=(*before.starts, start))
    return True


def swap_tasks(asm: Assembler, rng: np.random.Generator) -> bool:
    left, right = rng.choice(len(asm.tasks), 2, replace=False)
    asm.tasks[left], asm.tasks[right] = asm.tasks[right], asm.tasks[left]
    return asm.tasks[left] != asm.tasks[right]


def shift_lram(asm: Assembler, rng: np.random.Generator) -> bool:
    step = int(_pick(rng, [-4096, -64, -8, -1, 1, 8, 64, 0x800]))
    return _change_descriptor(asm, rng, lambda d: {"lram": max(0, d.lram + step)})


def shift_xram(asm: Assembler, rng: np.random.Generator) -> bool:
    step = int(_pick(rng, [-4096, -64, -1, 1, 8, 64, 4096]))
    return _change_descriptor(asm, rng, lambda d: {"xram": d.xram + step})


def shrink_transfer(asm: Assembler, rng: np.random.Generator) -> bool:
    less = int(rng.integers(1, 9))
    return _change_descriptor(asm, rng, lambda d: {"run": d.run - less} if d.run > less else None)


def corrupt_transfer_dims(asm: Assembler, rng: np.random.Generator) -> bool:
    def change(descriptor):
        if not descriptor.dims:
            return {"dims": ((2, int(rng.integers(-3, 9))),)}
        count, stride = descriptor.dims[0]
        return {"dims": ((count + int(rng.integers(-1, 2)), stride + int(rng.integers(-9, 10))),)}

    return _change_descriptor(asm, rng, change)


def reuse_live_buffer(asm: Assembler, rng: np.random.Generator) -> bool:
    other = _pick(rng, _starts(asm, StartDma))
    place = asm.tasks[other[0]].starts[other[1]].descriptor.lram
    return _change_descriptor(asm, rng, lambda d: {"lram": place})


def retarget_slice(asm: Assembler, rng: np.random.Generator) -> bool:
    where = _pick(rng, _starts(asm, StartSlice))
    start = asm.tasks[where[0]].starts[where[1]]
    return _replace_start(asm, where, structs.replace(start, slice_index=int(_pick(rng, [1 - start.slice_index, 2]))))


def corrupt_slice_start(asm: Assembler, rng: np.random.Generator) -> bool:
    where = _pick(rng, _starts(asm, StartSlice))
    start = asm.tasks[where[0]].starts[where[1]]
    change = _pick(rng, [{"address": start.address + 8}, {"size": start.size - 1}, {"size": start.size + 8}])
    return _replace_start(asm, where, structs.replace(start, **change))


def _change_task(asm: Assembler, rng: np.random.Generator, change: Callable[[SliceTask], SliceTask]) -> bool:
    """Change a slice task where its encoded program lies; its size does not depend on values."""
    number = _pick(rng, [n for n, segment in enumerate(asm.segments) if segment.kind == "program"])
    segment = asm.segments[number]
    tasks = list(decode_slice_program(segment.data))
    place = rng.integers(len(tasks))
    changed = change(tasks[place])
    same = changed == tasks[place]
    tasks[place] = changed
    data = encode_slice_program(tasks)
    if same or len(data) != len(segment.data):
        return False
    asm.segments[number] = dataclasses.replace(segment, data=data)
    return True


def _change_ndl(asm: Assembler, rng: np.random.Generator, change) -> bool:
    def apply(task: SliceTask) -> SliceTask:
        agents = [n for n in task.ndls if n.agent in (Agent.DEDR, Agent.DEWR, Agent.DEBR, Agent.DEQW)]
        ndl = _pick(rng, agents)
        return structs.replace(task, ndls=tuple(change(n) if n is ndl else n for n in task.ndls))

    return _change_task(asm, rng, apply)


def shift_operand(asm: Assembler, rng: np.random.Generator) -> bool:
    step = int(_pick(rng, [-4096, -64, -8, -1, 1, 8, 64, 4096]))
    return _change_ndl(asm, rng, lambda ndl: structs.replace(ndl, base=max(0, ndl.base + step)))


def corrupt_dim(asm: Assembler, rng: np.random.Generator) -> bool:
    def change(ndl):
        place = rng.integers(len(ndl.dims))
        dim = ndl.dims[place]
        if rng.integers(2):
            dim = structs.replace(dim, stride=dim.stride + int(rng.integers(-64, 65)))
        else:
            dim = structs.replace(dim, count=max(1, dim.count + int(rng.integers(-2, 3))))
        return structs.replace(ndl, dims=(*ndl.dims[:place], dim, *ndl.dims[place + 1 :]))

    return _change_ndl(asm, rng, change)


def corrupt_loop(asm: Assembler, rng: np.random.Generator) -> bool:
    def change(task: SliceTask) -> SliceTask:
        place = rng.integers(len(task.loops))
        loop = task.loops[place]
        loop = structs.replace(loop, extent=max(1, loop.extent + int(rng.integers(-3, 70))))
        return structs.replace(task, loops=(*task.loops[:place], loop, *task.loops[place + 1 :]))

    return _change_task(asm, rng, change)


def corrupt_plane(asm: Assembler, rng: np.random.Generator) -> bool:
    def change(task: SliceTask) -> SliceTask:
        part = _pick(rng, [name for name in ("plane", "window") if getattr(task, name)])
        if part is None:
            return task
        value = getattr(task, part)
        field = _pick(rng, [f.name for f in structs.fields(value) if f.name != "pad_value"])
        number = max(0, getattr(value, field) + int(rng.integers(-2, 3)))
        return structs.replace(task, **{part: structs.replace(value, **{field: number})})

    return _change_task(asm, rng, change)


def flip_program_bit(asm: Assembler, rng: np.random.Generator) -> bool:
    number = _pick(rng, [n for n, segment in enumerate(asm.segments) if segment.kind == "program"])
    segment = asm.segments[number]
    data = bytearray(segment.data)
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    asm.segments[number] = dataclasses.replace(segment, data=bytes(data))
    return True


MUTATORS: tuple[Mutator, ...] = (
    drop_wait,
    drop_start,
    repeat_start,
    start_earlier,
    swap_tasks,
    shift_lram,
    shift_xram,
    shrink_transfer,
    corrupt_transfer_dims,
    reuse_live_buffer,
    retarget_slice,
    corrupt_slice_start,
    shift_operand,
    corrupt_dim,
    corrupt_loop,
    corrupt_plane,
    flip_program_bit,
)
