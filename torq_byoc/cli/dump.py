"""Every level of IR as files of one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torq_byoc.cli.targets import DUMP_NAME, former_dump
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.report.disassembly import disassemble
from torq_byoc.report.story import Level


def dump_files(folder: Path, levels: Sequence[Level], compiled: CompiledModel) -> dict[Path, bytes]:
    """The files of a dump, numbered in the order in which the levels appeared; machine code comes last."""
    named = [*levels, Level("torq_hw/disassembly", "".join(f"{line}\n" for line in _machine_code(compiled)))]
    return {
        folder / DUMP_NAME.format(number=number, level=level.name.replace("/", "-")): level.text.encode()
        for number, level in enumerate(named)
    }


def replaced_files(folder: Path) -> list[Path]:
    """What an earlier dump left in the folder; all else there stays."""
    return former_dump(folder) if folder.is_dir() else []


def _machine_code(compiled: CompiledModel) -> Iterator[str]:
    for partition in compiled.partitions:
        yield f"{partition.facts.symbol}:"
        yield from disassemble(partition.program)
