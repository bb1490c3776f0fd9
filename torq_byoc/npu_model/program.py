"""A compiled program: memory image, bindings, sequencer blocks, and what each job is for.

Plain data.  The simulator, the timing model and the verifier work from this alone; ``container.py`` puts
its sections into a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from torq_byoc.errors import HardwareConfigError, ProgramFormatError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.config_data import check_machine
from torq_byoc.npu_model.dtypes import DType

META_SECTION = "program"
IMAGE_SECTION = "image"
SEGMENT_KINDS = ("weights", "program", "nss")
SPACES = ("lram", "xram")


@dataclass(frozen=True)
class Binding:
    """A tensor that the caller gives or gets, dense and row-major at an XRAM address.

    ``scale`` and ``zero_point`` say what its integers stand for; scale None: no quantization.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    address: int
    nbytes: int
    scale: float | None
    zero_point: int


@dataclass(frozen=True)
class Segment:
    """Part of the XRAM image, read-only at run time; ``kind`` is one of ``SEGMENT_KINDS``."""

    address: int
    data: bytes
    kind: str


@dataclass(frozen=True)
class NssBlock:
    """A sequencer block: where it lies in XRAM, and the LRAM slot (0 or 1) it executes from."""

    address: int
    size: int
    slot: int


class DeclaredBuffer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A buffer as the compiler meant and placed it: ``space`` is one of ``SPACES``, address and size in bytes.

    Two buffers may have the same place at different times; each is one tenancy of its bytes.
    """

    space: str
    address: int
    nbytes: int


class JobInfo(msgspec.Struct, frozen=True, gc=False):
    """What the compiler meant one start to be; the verifier holds the start to it.

    Attributes:
        label: the layer's node name.
        kind: what the job does for it (``"weights"``, ``"slice"``, ...).
        reads, writes: numbers of the buffers it touches, in ``Program.buffers``.
        seal: ``provenance.job_seal`` of the start that was meant.
    """

    label: str
    kind: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    seal: str


@dataclass(frozen=True)
class Program:
    """Everything the machine needs.

    Attributes:
        arena_address, arena_bytes: XRAM scratch for spilled tensors; undefined at the start.
        blocks: in execution order; the host puts block 0 into slot 0.
        buffers: what the jobs' ``reads`` and ``writes`` refer to.
        jobs: one a start, in program order.
        seal: ``provenance.program_seal`` of everything that is declared here.
    """

    config: NpuConfig
    segments: tuple[Segment, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    arena_address: int
    arena_bytes: int
    blocks: tuple[NssBlock, ...]
    buffers: tuple[DeclaredBuffer, ...]
    jobs: tuple[JobInfo, ...]
    seal: str

    def to_sections(self) -> dict[str, bytes]:
        """The program as named byte strings, the same bytes for equal programs."""
        meta = _Meta(
            config=self.config,
            segments=tuple(_SegmentEntry(s.address, len(s.data), s.kind) for s in self.segments),
            inputs=self.inputs,
            outputs=self.outputs,
            arena_address=self.arena_address,
            arena_bytes=self.arena_bytes,
            blocks=self.blocks,
            buffers=self.buffers,
            jobs=self.jobs,
            seal=self.seal,
        )
        return {
            META_SECTION: msgspec.json.encode(meta, order="sorted"),
            IMAGE_SECTION: b"".join(s.data for s in self.segments),
        }

    @classmethod
    def from_sections(cls, sections: Mapping[str, bytes]) -> Program:
        """The program of ``to_sections``; other sections are ignored.

        Raises:
            ProgramFormatError: a section is missing, or its content is not what ``to_sections`` writes.
        """
        for name in (META_SECTION, IMAGE_SECTION):
            if name not in sections:
                raise _damaged(f"section {name!r}", "it is missing")
        data = sections[META_SECTION]
        try:
            meta = msgspec.json.decode(data, type=_Meta)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _damaged(f"section {META_SECTION!r}", str(error)) from error
        if msgspec.json.decode(data) != msgspec.json.decode(msgspec.json.encode(meta)):
            raise _damaged(f"section {META_SECTION!r}", "it is not in the form that this version writes")
        _check_meta(meta, len(sections[IMAGE_SECTION]))
        return cls(
            config=meta.config,
            segments=_cut(meta.segments, sections[IMAGE_SECTION]),
            inputs=meta.inputs,
            outputs=meta.outputs,
            arena_address=meta.arena_address,
            arena_bytes=meta.arena_bytes,
            blocks=meta.blocks,
            buffers=meta.buffers,
            jobs=meta.jobs,
            seal=meta.seal,
        )


@dataclass(frozen=True)
class _SegmentEntry:
    address: int
    nbytes: int
    kind: str


@dataclass(frozen=True)
class _Meta:
    """The JSON section: the program without its bytes."""

    config: NpuConfig
    segments: tuple[_SegmentEntry, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    arena_address: int
    arena_bytes: int
    blocks: tuple[NssBlock, ...]
    buffers: tuple[DeclaredBuffer, ...]
    jobs: tuple[JobInfo, ...]
    seal: str


def _damaged(where: str, why: str) -> ProgramFormatError:
    return ProgramFormatError("the compiled program is damaged", where=where, why=why, remedy="compile the model again")


def _check_meta(meta: _Meta, image_bytes: int) -> None:
    """Facts that any reader of the program may rely on; what it does is the verifier's business."""
    try:
        check_machine(meta.config)
    except HardwareConfigError as error:
        raise _damaged("hardware description", error.render()) from error
    sizes = [segment.nbytes for segment in meta.segments]
    if min(sizes, default=0) < 0 or sum(sizes) != image_bytes:
        raise _damaged("segment table", f"segments of {sum(sizes)} bytes, image of {image_bytes}")
    for kind in {segment.kind for segment in meta.segments}.difference(SEGMENT_KINDS):
        raise _damaged("segment table", f"unknown kind {kind!r}")
    for space in {buffer.space for buffer in meta.buffers}.difference(SPACES):
        raise _damaged("buffer table", f"unknown memory {space!r}")
    used = [number for job in meta.jobs for number in (*job.reads, *job.writes)]
    if used and not 0 <= min(used) <= max(used) < len(meta.buffers):
        raise _damaged("job table", f"buffers {min(used)}..{max(used)} of {len(meta.buffers)}")
    addresses = [segment.address for segment in meta.segments] + [block.address for block in meta.blocks]
    addresses += [number for buffer in meta.buffers for number in (buffer.address, buffer.nbytes)]
    addresses += [binding.address for binding in (*meta.inputs, *meta.outputs)]
    numbers = [*addresses, *(block.size for block in meta.blocks), meta.arena_address, meta.arena_bytes]
    if min(numbers) < 0:
        raise _damaged("addresses", f"{min(numbers)} is negative")
    for binding in (*meta.inputs, *meta.outputs):
        if min(binding.shape, default=1) < 0 or binding.nbytes != math.prod(binding.shape) * binding.dtype.size:
            raise _damaged(
                f"binding {binding.name!r}",
                f"{binding.nbytes} bytes for {binding.dtype.value}{list(binding.shape)}",
            )


def _cut(entries: tuple[_SegmentEntry, ...], image: bytes) -> tuple[Segment, ...]:
    segments = []
    offset = 0
    for entry in entries:
        segments.append(Segment(entry.address, image[offset : offset + entry.nbytes], entry.kind))
        offset += entry.nbytes
    return tuple(segments)
