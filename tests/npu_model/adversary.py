"""A machine that runs programs as unluckily as the sequencer's rules allow.

A job may take effect in pieces at any moment between its start and the wait for its engine, memory that
nothing has written holds anything, and every access is checked on its own.  A program whose outputs depend
on any of that has no defined result.  Independent of the verifier: it executes, byte by byte where cheap.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.errors import TorqError
from torq_byoc.npu_model.encoding import decode_nss, decode_slice_program
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.isa import Engine, StartDma, StartSlice
from torq_byoc.npu_model.program import Program


class ForeignAccessError(Exception):
    """A job touched bytes that are not its to touch."""


class Machine:
    """One run.  ``mood`` says when jobs take effect: "eager", "lazy", or "random"."""

    def __init__(self, program: Program, inputs: dict[str, np.ndarray], mood: str, seed: int) -> None:
        self.program = program
        self.mood = mood
        self.rng = np.random.default_rng(seed)
        self.lram = self.rng.integers(0, 256, program.config.lram_bytes, dtype=np.uint8)
        self.regions: list[tuple[int, np.ndarray, str]] = []
        for segment in program.segments:
            self.regions.append((segment.address, np.frombuffer(segment.data, np.uint8).copy(), segment.kind))
        for binding in program.inputs:
            self.regions.append((binding.address, inputs[binding.name].reshape(-1).view(np.uint8).copy(), "input"))
        for binding in program.outputs:
            self.regions.append((binding.address, self._noise(binding.nbytes), "output"))
        if program.arena_bytes:
            self.regions.append((program.arena_address, self._noise(program.arena_bytes), "arena"))
        self.pending: list[tuple[tuple[Engine, int], Iterator[None]]] = []

    def _noise(self, nbytes: int) -> np.ndarray:
        return self.rng.integers(0, 256, nbytes, dtype=np.uint8)

    def run(self) -> dict[str, bytes]:
        first = self.program.blocks[0]
        data, offset = self._locate(first.address, first.address + first.size)[:2]
        self.lram[: first.size] = data[offset : offset + first.size]
        slot_bytes = self.program.config.nss_block_bytes
        for block in self.program.blocks:
            start = block.slot * slot_bytes
            for task in decode_nss(self.lram[start : start + block.size].tobytes()):
                for item in task.starts:
                    self._start(item)
                self._stir()
                for wait in task.waits:
                    self._finish((wait.engine, wait.slice_index if wait.engine is Engine.SLICE else 0))
                    self._stir()
        for engine in {engine for engine, _ in self.pending}:
            self._finish(engine)
        return {
            binding.name: next(data.tobytes() for start, data, kind in self.regions if start == binding.address)
            for binding in self.program.outputs
        }

    def _start(self, item: StartDma | StartSlice) -> None:
        if isinstance(item, StartSlice):
            self.pending.append(((Engine.SLICE, item.slice_index), self._slice(item)))
        else:
            self.pending.append(((item.engine, 0), self._transfer(item)))
        if self.mood == "eager":
            self._finish(self.pending[-1][0])

    def _stir(self) -> None:
        """Let some of the pending jobs make a step."""
        if self.mood != "random":
            return
        for _ in range(self.rng.integers(0, 4)):
            if self.pending:
                next(self.pending[self.rng.integers(len(self.pending))][1], None)

    def _finish(self, engine: tuple[Engine, int]) -> None:
        for key, steps in self.pending:
            if key == engine:
                for _ in steps:
                    if self.mood == "random":
                        self._stir()
        self.pending = [entry for entry in self.pending if entry[0] != engine]

    def _transfer(self, item: StartDma) -> Iterator[None]:
        descriptor = item.descriptor
        offsets = np.zeros(1, np.int64)
        for count, stride in descriptor.dims:
            offsets = (offsets[:, None] + np.arange(count) * stride).reshape(-1)
        halves = [range(len(offsets))] if len(offsets) == 1 else [range(len(offsets) // 2), range(len(offsets))]
        for half in halves:
            for index in half:
                self._copy(item, int(descriptor.xram + offsets[index]), descriptor.lram + index * descriptor.run)
            yield

    def _copy(self, item: StartDma, xram: int, lram: int) -> None:
        run = item.descriptor.run
        data, offset, kind = self._locate(xram, xram + run)
        reserve = self.program.config.lram_reserve
        if lram + run > self.lram.size or (lram < reserve) != (kind == "nss"):
            raise ForeignAccessError(f"transfer at LRAM {lram:#x}")
        if item.engine is Engine.DMA_IN:
            self.lram[lram : lram + run] = data[offset : offset + run]
        elif kind not in ("output", "arena"):
            raise ForeignAccessError(f"a write to {kind}")
        else:
            data[offset : offset + run] = self.lram[lram : lram + run]

    def _locate(self, start: int, end: int) -> tuple[np.ndarray, int, str]:
        for address, data, kind in self.regions:
            if address <= start and end <= address + data.size:
                return data, start - address, kind
        raise ForeignAccessError(f"XRAM {start:#x}..{end:#x}")

    def _slice(self, item: StartSlice) -> Iterator[None]:
        if item.slice_index >= self.program.config.slices:
            raise ForeignAccessError(f"slice {item.slice_index}")
        code = self.lram[item.address : item.address + item.size].tobytes()
        for task in decode_slice_program(code):
            before = self.lram[: self.program.config.lram_reserve].copy()
            execute_task(task, self.lram)
            if not np.array_equal(before, self.lram[: before.size]):
                raise ForeignAccessError("a slice wrote to the sequencer's slots")
            yield


def outcomes(program: Program, inputs: dict[str, np.ndarray], seeds: int = 4) -> set[object]:
    """Distinct results over moods and memory contents, until there are two; a string for a run that failed."""
    results: set[object] = set()
    moods = [("eager", 1), ("lazy", 2)] + [("random", 3 + k) for k in range(seeds)]
    for mood, seed in moods:
        try:
            results.add(tuple(sorted(Machine(program, inputs, mood, seed).run().items())))
        except (TorqError, ForeignAccessError, IndexError, ValueError, ArithmeticError, RuntimeError) as error:
            results.add(f"{type(error).__name__}")
        if len(results) > 1:
            break
    return results
