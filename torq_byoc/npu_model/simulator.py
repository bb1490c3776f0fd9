"""Functional simulation of a program from its memory image and descriptors alone.

The host side: put inputs into XRAM and block 0 into its slot, start the sequencer, fetch outputs.  The machine
side: decode each sequencer block from LRAM, do every job when it is started, in program order; a verified
program has no other observable order.  Memory that nothing has written reads as ``0xA5``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from torq_byoc.errors import CalibrationError, ShapeError, VerificationError
from torq_byoc.npu_model.blas import single_threaded
from torq_byoc.npu_model.encoding import decode_nss, decode_slice_program
from torq_byoc.npu_model.execute import FillPlan, Pram, TaskPlan, plan
from torq_byoc.npu_model.isa import Engine, NssTask, SliceTask, Start, StartDma, StartSlice
from torq_byoc.npu_model.program import Binding, NssBlock, Program
from torq_byoc.npu_model.scalar import execute_task_scalar
from torq_byoc.npu_model.xram import Region, XramMap

_UNDEFINED = 0xA5

_PLANS = 16384
"""Slice programs whose analysis is kept; further ones are analysed at every start."""


class Observer(Protocol):
    """Looks on while a program runs; jobs are numbered in program order."""

    def before(self, job: int, start: Start, memory: Memory) -> None:
        """Called before a job is done."""

    def after(self, job: int, start: Start, memory: Memory) -> None:
        """Called when it is done."""


class Simulator:
    """Runs a program; its memories start afresh at every run.

    Args:
        program: a verified program.
        scalar: execute slice tasks one element at a time (slow; for tests).
    """

    def __init__(self, program: Program, *, scalar: bool = False) -> None:
        self.program = program
        self._scalar = scalar
        self._map = XramMap(program)
        self._slice_programs: dict[bytes, tuple[_Runnable, ...]] = {}
        self._blocks: dict[bytes, tuple[NssTask, ...]] = {}

    def run(self, inputs: Mapping[str, np.ndarray], observer: Observer | None = None) -> dict[str, np.ndarray]:
        """One inference.

        Args:
            inputs: an array of the binding's shape and element type for every input of the program.
            observer: looks on.

        Returns:
            The outputs by name; bf16 ones as ``ml_dtypes.bfloat16``.

        Raises:
            CalibrationError: an input is missing, unknown, or of another element type.
            ShapeError: an input has another shape.
            VerificationError: the program leaves its memories.
            ProgramFormatError: the program's bytes are no valid encoding.
        """
        images = _input_images(self.program.inputs, inputs)
        memory = Memory.of(self.program, self._map, images)
        prams: defaultdict[int, Pram] = defaultdict(Pram)
        with single_threaded():
            for job, start in enumerate(self._starts(memory.lram)):
                if observer:
                    observer.before(job, start, memory)
                if isinstance(start, StartDma):
                    memory.transfer(start)
                else:
                    self._run_slice(start, memory.lram, prams[start.slice_index])
                if observer:
                    observer.after(job, start, memory)
        return {binding.name: memory.fetch(binding) for binding in self.program.outputs}

    def _starts(self, lram: np.ndarray) -> Iterator[Start]:
        """The program's jobs in order; each block is decoded from its slot when its turn comes."""
        for block in self.program.blocks:
            for task in self._tasks(block, lram):
                yield from task.starts

    def _tasks(self, block: NssBlock, lram: np.ndarray) -> tuple[NssTask, ...]:
        """The tasks of a block, decoded from its slot."""
        address = block.slot * self.program.config.nss_block_bytes
        code = lram[address : address + block.size].tobytes()
        if code not in self._blocks:
            self._blocks[code] = tuple(decode_nss(code))
        return self._blocks[code]

    def _run_slice(self, start: StartSlice, lram: np.ndarray, pram: Pram) -> None:
        """Execute the slice program that lies at the start's address, on a slice with these partial sums."""
        code = lram[start.address : start.address + start.size].tobytes()
        runnables = self._slice_programs.get(code)
        if runnables is None:
            runnables = tuple(self._prepare(code))
            if len(self._slice_programs) < _PLANS:
                self._slice_programs[code] = runnables
        for runnable in runnables:
            runnable.run(lram, pram)

    def _prepare(self, code: bytes) -> Iterator[_Runnable]:
        for task in decode_slice_program(code):
            yield _ScalarTask(task) if self._scalar else plan(task)


@dataclass(frozen=True)
class _ScalarTask:
    """A task for the scalar interpreter."""

    task: SliceTask

    def run(self, lram: np.ndarray, pram: Pram) -> None:
        """Execute the task."""
        try:
            execute_task_scalar(self.task, lram, pram.scalar)
        except IndexError as error:
            raise _outside(str(error)) from error


_Runnable = TaskPlan | FillPlan | _ScalarTask


def _outside(why: str) -> VerificationError:
    return VerificationError("a program leaves its memories", why=why, remedy="compile the model again")


@dataclass(frozen=True)
class Memory:
    """LRAM and the regions of XRAM during one run; arrays of uint8, regions by their start address."""

    lram: np.ndarray
    xram: dict[int, np.ndarray]
    map: XramMap

    @classmethod
    def of(cls, program: Program, regions: XramMap, images: Mapping[str, np.ndarray]) -> Memory:
        """The memories as the host leaves them: constants, inputs, and block 0 in its slot."""
        lram = np.full(program.config.lram_bytes, _UNDEFINED, np.uint8)
        xram = {region.start: _content(region, images) for region in regions.regions}
        memory = cls(lram, xram, regions)
        if program.blocks:
            first = program.blocks[0]
            slot = first.slot * program.config.nss_block_bytes
            lram[slot : slot + first.size] = memory.image(first.address, first.size)
        return memory

    def image(self, address: int, size: int) -> np.ndarray:
        """Bytes of XRAM that lie in one region."""
        for start, content in self.xram.items():
            if start <= address and address + size <= start + content.size:
                return content[address - start : address - start + size]
        raise _outside(f"XRAM {address:#x}..{address + size:#x} is in no segment, binding or arena")

    def transfer(self, start: StartDma) -> None:
        """Do a DMA job."""
        descriptor = start.descriptor
        region = self.map.find(descriptor)
        end = descriptor.lram + descriptor.nbytes
        if region is None:
            raise _outside(f"transfer at XRAM {descriptor.xram:#x} is in no segment, binding or arena")
        if not 0 <= descriptor.lram <= end <= self.lram.size:
            raise _outside(f"transfer at LRAM {descriptor.lram}..{end} of {self.lram.size}")
        outside = region.strided(self.xram[region.start], descriptor)
        inside = self.lram[descriptor.lram : end].reshape(outside.shape)
        if start.engine is Engine.DMA_IN:
            inside[...] = outside
        elif region.writable:
            outside[...] = inside
        else:
            raise _outside(f"transfer writes to the {region.kind} region {region.name!r}")

    def fetch(self, binding: Binding) -> np.ndarray:
        """A copy of a bound tensor."""
        raw = self.image(binding.address, binding.nbytes) if binding.nbytes else np.empty(0, np.uint8)
        return raw.copy().view(binding.dtype.numpy).reshape(binding.shape)


def _content(region: Region, images: Mapping[str, np.ndarray]) -> np.ndarray:
    if region.data is not None:
        return region.data
    if region.kind == "input":
        return images[region.name]
    return np.full(region.end - region.start, _UNDEFINED, np.uint8)


def _input_images(bindings: tuple[Binding, ...], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The bytes of every input, checked against its binding."""
    names = [binding.name for binding in bindings]
    missing = [name for name in names if name not in inputs]
    unknown = [name for name in inputs if name not in names]
    if missing or unknown:
        raise CalibrationError(
            "the inputs are not those of the program",
            where=", ".join(missing + unknown),
            why=f"missing {missing}, unknown {unknown}",
            remedy=f"give one array for each of {names}",
        )
    return {binding.name: _image(binding, np.asarray(inputs[binding.name])) for binding in bindings}


def _image(binding: Binding, value: np.ndarray) -> np.ndarray:
    if value.dtype != binding.dtype.numpy:
        raise CalibrationError(
            f"input {binding.name!r} has the wrong element type",
            where=binding.name,
            why=f"{value.dtype.name} where the program takes {binding.dtype.value}",
            remedy=f"convert it with .astype({binding.dtype.value!r}) or quantize it by the binding's scale",
        )
    if value.shape != binding.shape:
        raise ShapeError(
            f"input {binding.name!r} has the wrong shape",
            where=binding.name,
            why=f"{list(value.shape)} where the program takes {list(binding.shape)}",
            remedy="reshape it, or compile the model for that shape",
        )
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
