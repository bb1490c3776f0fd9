"""Copies whose source and result are one place are not made; others are."""

from __future__ import annotations

import pytest
from codegen.infra import check_program
from codegen.passes.graphs import applied, fork

from torq_byoc.codegen.hl import SliceCall
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.record import DecisionRecord

ALONE = DecisionRecord(groups=())


def calls(found, node: str) -> int:
    return sum(isinstance(op, SliceCall) and op.node == node for op in found.ops)


def test_producers_write_into_the_concatenation() -> None:
    found = applied("in-place", fork(), record=ALONE)
    assert found.saved["slice_jobs"] == calls(found.before, "joined") > 0
    assert calls(found.after, "joined") == 0
    outputs = {op.node: op.invocation.output for op in found.after.ops if isinstance(op, SliceCall)}
    assert outputs["left"].buffer == outputs["right"].buffer
    assert outputs["right"].offset - outputs["left"].offset == 16 * 15 * 15


def test_readers_of_a_part_read_the_whole() -> None:
    found = applied("in-place", fork(begin=6), record=ALONE)
    assert calls(found.after, "joined") == calls(found.after, "part") == 0
    (reader, *_) = (op for op in found.after.ops if isinstance(op, SliceCall) and op.node == "down")
    (left, *_) = (op for op in found.after.ops if isinstance(op, SliceCall) and op.node == "left")
    assert reader.invocation.inputs[0].buffer == left.invocation.output.buffer
    assert reader.invocation.inputs[0].offset == 6 * 15 * 15


def test_parts_with_other_strides_are_copied() -> None:
    """Columns of two tensors side by side: rows of the result are longer than rows of either."""
    found = applied("in-place", fork(axis=3), record=ALONE)
    assert found.saved["slice_jobs"] == 0
    assert found.after.ops == found.before.ops


def test_tensors_in_xram_are_copied() -> None:
    graph = fork()
    resident = dict.fromkeys(applied("in-place", graph).schedule.record.resident, False)
    found = applied("in-place", graph, record=DecisionRecord(resident=resident, groups=()))
    assert calls(found.after, "joined") == calls(found.before, "joined")


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("begin", [0, 3, 16])
@pytest.mark.parametrize("lram", [16, 512])
def test_bits_stay_the_same(axis: int, begin: int, lram: int) -> None:
    for disabled in ((), ("fusion",), ("residency",), ("in-place", "fusion")):
        check_program(fork(axis=axis, begin=begin), NpuConfig(lram_bytes=lram * 1024), disabled)
