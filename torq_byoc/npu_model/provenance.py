"""Seals: short digests by which a program is held to what its compiler declared.

A job's seal is made from the start that code generation meant, at the moment it means it; the verifier
makes it again from the start and the slice program that the machine would see.  A program's seal ties the
declarations themselves, and the constants that no job's seal covers.  Seals find accidents (a defect of
ours, damage that a checksum was computed over), not forgery.
"""

from __future__ import annotations

import hashlib

import msgspec

from torq_byoc.npu_model.encoding_nss import encode_nss, encode_start
from torq_byoc.npu_model.isa import NssTask, Start, StartSlice
from torq_byoc.npu_model.program import Program

SEAL_DIGITS = 16

_ANY_START = StartSlice(0, 0, 0)
_ALONE = encode_nss((NssTask((_ANY_START,)),)).removesuffix(encode_start(_ANY_START))
"""What stands in front of the start in a block that does nothing else."""


def job_seal(start: Start, code: bytes = b"") -> str:
    """The seal of one start: its engine, slice and descriptor, and the bytes of the slice program it runs."""
    return _digest(_ALONE + encode_start(start) + code)


class JobSeals:
    """The seals of many starts: a slice runs a program that stays in its place again and again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Start, bytes], str] = {}

    def of(self, start: Start, code: bytes = b"") -> str:
        """``job_seal``."""
        if not code:
            return job_seal(start)
        key = (start, code)
        seal = self._known.get(key)
        if seal is None:
            seal = self._known[key] = job_seal(start, code)
        return seal


def program_seal(program: Program) -> str:
    """The seal of machine, bindings, arena, buffers, job list and weights; ``Program.seal`` has no part in it."""
    declared = (
        program.config,
        program.inputs,
        program.outputs,
        (program.arena_address, program.arena_bytes),
        program.buffers,
        program.jobs,
        [(segment.address, _digest(segment.data)) for segment in program.segments if segment.kind == "weights"],
    )
    return _digest(msgspec.json.encode(declared, order="sorted"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:SEAL_DIGITS]
