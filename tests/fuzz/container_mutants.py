"""Damaged containers: bytes, and sound files around unsound sections, down to the machine code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from tests.fuzz.awkward import Rng, edited, pick
from tests.fuzz.byte_mutants import damaged
from torq_byoc.errors import TorqError
from torq_byoc.npu_model.container import pack_container, unpack_container
from torq_byoc.npu_model.encoding import decode_nss, decode_slice_program, encode_nss, encode_slice_program
from torq_byoc.npu_model.isa import NssTask, SliceTask, StartDma, WaitFor
from torq_byoc.npu_model.program import JobInfo, Program, Segment
from torq_byoc.npu_model.provenance import job_seal, program_seal
from torq_byoc.npu_model.trace import trace

PREFIX = "partition/0/"
Sections = dict[str, bytes]


def mutant(data: bytes, rng: Rng) -> bytes:
    """One damaged container: a fifth by its bytes, the others inside, under new checksums."""
    if rng.integers(5) == 0:
        return damaged(data, rng)
    sections = unpack_container(data)
    pick(rng, (json_section, json_section, raw_section, section_list, machine_code, machine_code, host))(sections, rng)
    return pack_container(sections)


def json_section(sections: Sections, rng: Rng) -> None:
    """A value of a JSON section."""
    name = pick(rng, [name for name in sections if name.endswith(("facts", "program", "model"))])
    data = edited(json.loads(sections[name]), rng)
    text = json.dumps(data)
    if rng.integers(10) == 0:
        text = pick(rng, ("[" * 100_000, "", "null", "NaN", "[]", '{"a":' * 5000, text[:-2]))
    sections[name] = text.encode()


def raw_section(sections: Sections, rng: Rng) -> None:
    """The bytes of any section."""
    name = pick(rng, [name for name, data in sections.items() if data])
    sections[name] = damaged(sections[name], rng)


def section_list(sections: Sections, rng: Rng) -> None:
    """A section left out, renamed, emptied, or one too many."""
    name = pick(rng, sections)
    kind = rng.integers(4)
    if kind == 0:
        del sections[name]
    elif kind == 1:
        sections[pick(rng, ("model", "host", "partition/1/facts", "x"))] = sections.pop(name)
    elif kind == 2:
        sections[name] = b""
    else:
        sections[name.replace("/0/", "/1/") + "_"] = sections[name]


def host(sections: Sections, rng: Rng) -> None:
    """The text or the constants of the host part, where there is one."""
    if not sections.get("host"):
        return
    inner = unpack_container(sections["host"])
    name = pick(rng, ("script", *inner))
    if name == "script" and rng.integers(2):
        words = inner[name].decode().split(" ")
        words[int(rng.integers(len(words)))] = pick(rng, (*words, "0", "-1", "(", "R.add(x, x)", "exit()", '"int8"'))
        inner[name] = " ".join(words).encode()
    else:
        inner[name] = damaged(inner[name], rng)
    sections["host"] = pack_container(inner)


def machine_code(sections: Sections, rng: Rng) -> None:
    """A start, a wait or a slice task; often with new seals, as if the compiler had meant it."""
    own = {name: sections[PREFIX + name] for name in ("program", "image")}
    program = Program.from_sections(own)
    kind = pick(rng, ("nss", "nss", "program"))
    segments = [n for n, segment in enumerate(program.segments) if segment.kind == kind and segment.data]
    if not segments:
        return
    number = pick(rng, segments)
    segment = program.segments[number]
    try:
        data = (_blocks if kind == "nss" else _slice_programs)(segment, rng)
    except TorqError:  # a value that has no encoding
        return
    changed = replace(segment, data=data)
    if len(data) != len(segment.data):
        blocks = tuple(replace(b, size=len(data)) if b.address == segment.address else b for b in program.blocks)
        program = replace(program, blocks=blocks)
    program = replace(program, segments=(*program.segments[:number], changed, *program.segments[number + 1 :]))
    if rng.integers(4):
        program = _sealed(program)
    for name, section in program.to_sections().items():
        sections[PREFIX + name] = section


def _blocks(segment: Segment, rng: Rng) -> bytes:
    tasks = list(decode_nss(segment.data))
    place = int(rng.integers(len(tasks)))
    task = tasks[place]
    kind = rng.integers(5)
    if kind == 0:
        del tasks[place]
    elif kind == 1:
        tasks.insert(place, task)
    elif kind == 2 and task.waits:
        tasks[place] = NssTask(task.starts, task.waits[1:])
    elif kind == 3:
        tasks[place] = NssTask(task.starts, (*task.waits, pick(rng, [w for t in tasks for w in t.waits] or _NO_WAIT)))
    elif task.starts:
        which = int(rng.integers(len(task.starts)))
        start = task.starts[which]
        value = start.descriptor if isinstance(start, StartDma) else start
        nudged = _nudged(value, rng)
        start = structs.replace(start, descriptor=nudged) if isinstance(start, StartDma) else nudged
        tasks[place] = NssTask((*task.starts[:which], start, *task.starts[which + 1 :]), task.waits)
    return encode_nss(tasks)


_NO_WAIT: list[WaitFor] = []


def _slice_programs(segment: Segment, rng: Rng) -> bytes:
    """One number of one task of a segment of slice programs, or some of its bytes where that changes its size."""
    offset, tasks = 0, []
    while offset + 2 <= len(segment.data):
        size = int.from_bytes(segment.data[offset : offset + 2], "little")
        if not size:
            offset += 1
            continue
        tasks.append((offset, size))
        offset += size
    offset, size = pick(rng, tasks)
    task = _nudged_task(decode_slice_program(segment.data[offset : offset + size])[0], rng)
    data = encode_slice_program([task])
    if len(data) != size:
        data = damaged(segment.data[offset : offset + size], rng)[:size].ljust(size, b"\0")
    return segment.data[:offset] + data + segment.data[offset + size :]


def _nudged_task(task: SliceTask, rng: Rng) -> SliceTask:
    kind = rng.integers(5)
    if kind == 0:
        return structs.replace(task, act=_nudged(task.act, rng))
    if kind == 1:
        loop = int(rng.integers(len(task.loops)))
        return structs.replace(task, loops=_with(task.loops, loop, _nudged(task.loops[loop], rng)))
    if kind == 2 and (task.plane or task.window):
        name = pick(rng, [name for name in ("plane", "window") if getattr(task, name)])
        return structs.replace(task, **{name: _nudged(getattr(task, name), rng)})
    if kind == 3:
        return _nudged(task, rng)
    place = int(rng.integers(len(task.ndls)))
    ndl = task.ndls[place]
    if ndl.dims and rng.integers(3):
        which = int(rng.integers(len(ndl.dims)))
        ndl = structs.replace(ndl, dims=_with(ndl.dims, which, _nudged(ndl.dims[which], rng)))
    else:
        ndl = _nudged(ndl, rng)
    return structs.replace(task, ndls=_with(task.ndls, place, ndl))


def _with(items: tuple, place: int, item: object) -> tuple:
    return (*items[:place], item, *items[place + 1 :])


def _nudged(value: Any, rng: Rng) -> Any:
    """A dataclass or struct with one of its numbers changed."""
    is_struct = isinstance(value, msgspec.Struct)
    fields = structs.fields(value) if is_struct else dataclasses.fields(value)
    numbers = [field.name for field in fields if isinstance(getattr(value, field.name), int | float)]
    name = pick(rng, numbers)
    old = getattr(value, name)
    step = pick(rng, (-4096, -8, -2, -1, 1, 2, 8, 4096, 1 << 20, -1 << 20))
    new = old + step if abs(old) < 2**60 else step
    kind: Callable = type(old)
    try:
        return (structs.replace if is_struct else replace)(value, **{name: kind(new)})
    except (ValueError, OverflowError):
        return value


def _sealed(program: Program) -> Program:
    """The program with its seals made anew, as far as its machine code can be followed."""
    jobs: list[JobInfo] = list(program.jobs)
    try:
        for step in trace(program):
            for job in step.jobs:
                if job.index < len(jobs):
                    jobs[job.index] = structs.replace(jobs[job.index], seal=job_seal(job.start, job.code))
    except (TorqError, ValueError, IndexError):
        pass
    program = replace(program, jobs=tuple(jobs))
    try:
        return replace(program, seal=program_seal(program))
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return program
