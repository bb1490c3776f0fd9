"""Blocks of sequencer code: fetched in time, whole, and not over the one that runs."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from tests.npu_model import infra
from tests.npu_model.infra import Assembler
from tests.npu_model.violations import physical, rules


def long_program():
    return infra.assemble_relu(40, 64).finish()


def with_blocks(program, change):
    blocks = list(program.blocks)
    change(blocks)
    return dataclasses.replace(program, blocks=tuple(blocks))


def test_blocks_chain_through_alternating_slots():
    program = long_program()
    assert len(program.blocks) >= 3
    assert physical(program) == []
    swapped = with_blocks(program, lambda b: b.__setitem__(1, dataclasses.replace(b[1], slot=0)))
    assert rules(swapped) == {"program"}
    moved = with_blocks(program, lambda b: b.__setitem__(1, dataclasses.replace(b[1], address=b[2].address)))
    assert physical(moved)
    long = with_blocks(program, lambda b: b.__setitem__(0, dataclasses.replace(b[0], size=641)))
    assert "limit" in rules(long)
    none = with_blocks(program, lambda b: b.clear())
    assert rules(none) == {"program"}


def test_a_block_fetch_must_be_waited_for(monkeypatch):
    plain = Assembler._with_fetch

    def careless(tasks, lram, xram, size):
        *rest, last = plain(tasks, lram, xram, size)
        return [*rest, structs.replace(last, waits=())]

    monkeypatch.setattr(Assembler, "_with_fetch", staticmethod(careless))
    found = physical(long_program())
    assert "before its fetch" in found[0].message


@pytest.mark.parametrize("shift", [0, -640])
def test_a_block_fetch_must_not_hit_the_running_block(monkeypatch, shift):
    plain = Assembler._with_fetch
    monkeypatch.setattr(
        Assembler,
        "_with_fetch",
        staticmethod(lambda tasks, lram, xram, size: plain(tasks, 0 if shift else lram, xram, size)),
    )
    assert bool(physical(long_program())) == bool(shift)


def test_a_short_block_fetch_leaves_an_incomplete_block(monkeypatch):
    plain = Assembler._with_fetch
    monkeypatch.setattr(
        Assembler,
        "_with_fetch",
        staticmethod(lambda tasks, lram, xram, size: plain(tasks, lram, xram, max(1, size - 8))),
    )
    assert "program" in rules(long_program())
