"""Rules about a program that need no walk: its memory map and its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.xram import XramMap


def static_problems(program: Program, xram: XramMap) -> Iterator[tuple[str, str]]:
    """Broken rules as (rule, message).

    Args:
        program: the program.
        xram: its regions.
    """
    yield from _memory_map(program, xram)
    yield from _blocks(program, xram)


def _memory_map(program: Program, xram: XramMap) -> Iterator[tuple[str, str]]:
    config = program.config
    top = config.xram_base + config.xram_bytes
    for region in xram.regions:
        if region.start < config.xram_base or region.end > top:
            span = f"{region.start:#x}..{region.end:#x}"
            yield "bounds", f"{region.name!r} at {span} is outside XRAM {config.xram_base:#x}..{top:#x}"
    for left, right in xram.overlaps():
        yield "bounds", f"{left.name!r} and {right.name!r} overlap in XRAM at {right.start:#x}"
    for binding in (*program.inputs, *program.outputs):
        if binding.address % config.xram_page:
            yield "bounds", f"{binding.name!r} at {binding.address:#x} is not at a multiple of {config.xram_page}"
    starts = [segment.address for segment in program.segments] + [program.arena_address] * bool(program.arena_bytes)
    for address in starts:
        if address % config.xram_align:
            yield "bounds", f"XRAM buffer at {address:#x} is not at a multiple of {config.xram_align}"


def _blocks(program: Program, xram: XramMap) -> Iterator[tuple[str, str]]:
    if not program.blocks:
        yield "program", "no sequencer block"
    for number, block in enumerate(program.blocks):
        if block.slot != number % 2:
            yield "program", f"block {number} in slot {block.slot}, which must alternate from 0"
        if not 0 < block.size <= program.config.nss_block_bytes:
            yield "limit", f"block {number} of {block.size} bytes, at most {program.config.nss_block_bytes}"
        region = xram.around(block.address, block.address + block.size)
        if region is None or region.kind != "nss":
            yield "bounds", f"block {number} at {block.address:#x} is not inside an nss segment"
