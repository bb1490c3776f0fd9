"""Slice tasks against truths computed without the simulator: folds, lanes, writes and fills."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.npu_model.task_memory import ADD, BF16, BIASES, FP32, I8, I16, I32, MAC, OUT, U8, Memory, lane, task_of
from torq_byoc.errors import VerificationError
from torq_byoc.kernels.dsl import LoopSpec, Operand
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import (
    ActConfig,
    ActMode,
    AluConfig,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    Rounding,
    Tag,
)


def test_max_pool_writes_the_phase_planes_that_a_stride_two_reader_wants() -> None:
    rng = np.random.default_rng(8)
    x = rng.integers(-128, 128, (1, 5, 6)).astype(np.int8)
    padded = np.pad(x[0], 1, constant_values=-128)
    expected = np.stack([padded[i : i + 5, j : j + 6] for i in range(3) for j in range(3)]).max(axis=0)
    memory = Memory()
    task = task_of(
        lane(30),
        LoopSpec("i", 3, Role.REDUCE, Tag.KERNEL_ROW),
        LoopSpec("j", 3, Role.REDUCE, Tag.KERNEL_COLUMN),
        data=Operand(memory.put(x), I8),
        result=Operand(OUT, I8),
        alu=AluConfig(Op0.DBYP, Op1.MAX),
        plane=Plane(5, 6, 6, 6, pad_top=1, pad_left=1, pad_value=-128),
        window=OutputWindow(6, 1, 5, 3, 1, stride_y=2, stride_x=2, phase_stride_y=18, phase_stride_x=9),
    )
    memory.run(task)
    for phase_y in range(2):
        for phase_x in range(2):
            wanted = expected[phase_y::2, 1 + phase_x :: 2]
            written = memory.take(OUT + 18 * phase_y + 9 * phase_x, I8, 3, 3)
            assert np.array_equal(written[: wanted.shape[0], : wanted.shape[1]], wanted)


@pytest.mark.parametrize("rows", [2, 300])
def test_reduction_over_the_first_axis_and_its_extremes(rows: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.integers(-50, 50, (rows, 12)).astype(np.int16)
    memory = Memory()
    source = memory.put(x)
    truths = {
        Op1.ACC: x.sum(axis=0),
        Op1.MAX: x.max(axis=0),
        Op1.MIN: x.min(axis=0),
        Op1.AMAX: x.argmax(axis=0),
        Op1.AMIN: x.argmin(axis=0),
        Op1.BYP: x[-1],
    }
    for op1, truth in truths.items():
        task = task_of(
            lane(12),
            LoopSpec("r", rows, Role.REDUCE),
            data=Operand(source, I16, {"f": 2, "r": 24}),
            result=Operand(OUT, I32, {"f": 4}),
            alu=AluConfig(Op0.DBYP, op1),
        )
        memory.run(task)
        assert memory.take(OUT, I32, 12).tolist() == truth.tolist(), op1


def test_comparisons_and_logic_give_zero_and_one() -> None:
    memory = Memory()
    a, b = np.array([1, 2, 3, 0], np.int8), np.array([2, 2, 1, 0], np.int8)
    source = memory.put(np.stack([a, b]))
    truths = {
        Op1.GT: [0, 0, 1, 0],
        Op1.GE: [0, 1, 1, 1],
        Op1.EQ: [0, 1, 0, 1],
        Op1.AND: [1, 1, 1, 0],
        Op1.OR: [1, 1, 1, 0],
        Op1.XOR: [0, 0, 0, 0],
        Op1.BAND: [0, 2, 1, 0],
        Op1.BOR: [3, 2, 3, 0],
        Op1.BXOR: [3, 0, 2, 0],
    }
    for op1, truth in truths.items():
        task = task_of(
            lane(4),
            LoopSpec("r", 2, Role.REDUCE),
            data=Operand(source, I8, {"f": 1, "r": 4}),
            result=Operand(OUT, I8, {"f": 1}),
            alu=AluConfig(Op0.DBYP, op1),
        )
        memory.run(task)
        assert memory.take(OUT, I8, 4).tolist() == truth, op1


@pytest.mark.parametrize(
    ("op1", "dtype", "values", "truth"),
    [
        (Op1.NOT, U8, [0, 1, 255], [1, 0, 0]),
        (Op1.BNOT, U8, [0, 1, 255], [255, 254, 0]),
        (Op1.BNOT, I8, [0, 1, -1], [-1, -2, 0]),
    ],
)
def test_negations(op1: Op1, dtype: DType, values: list[int], truth: list[int]) -> None:
    memory = Memory()
    source = memory.put(np.array(values, dtype.numpy))
    task = task_of(
        lane(3),
        data=Operand(source, dtype, {"f": 1}),
        result=Operand(OUT, dtype, {"f": 1}),
        alu=AluConfig(Op0.DBYP, op1),
    )
    memory.run(task)
    assert memory.take(OUT, dtype, 3).tolist() == truth


def test_lanes_may_have_biases_and_scales_of_their_own() -> None:
    memory = Memory()
    x = memory.put(np.array([10, 20, 30], np.int8))
    pairs = np.array([[1, 1], [2, 2], [-3, -1]], np.int32)
    task = task_of(
        lane(3),
        data=Operand(x, I8, {"f": 1}),
        bias=Operand(memory.put(pairs, BIASES), I32, {"f": 8}),
        result=Operand(OUT, I8, {"f": 1}),
        alu=ADD,
    )
    memory.run(task)
    assert memory.take(OUT, I8, 3).tolist() == [11, 44, -27]


def test_variable_shifts_take_their_amounts_from_the_scale_slot() -> None:
    memory = Memory()
    x = memory.put(np.array([-16, -15, 15, 1], np.int32))
    pairs = np.array([[99, 1], [99, 1], [99, 2], [99, 0]], np.int32)
    task = task_of(
        lane(4),
        data=Operand(x, I32, {"f": 4}),
        bias=Operand(memory.put(pairs, BIASES), I32, {"f": 8}),
        result=Operand(OUT, I32, {"f": 4}),
        alu=ADD,
        act=ActConfig(ActMode.ASR, rounding=Rounding.OFF),
    )
    memory.run(task)
    assert memory.take(OUT, I32, 4).tolist() == [-8, -8, 3, 1]


def test_a_tensor_may_be_reversed_broadcast_and_updated_in_place() -> None:
    memory = Memory()
    x = memory.put(np.array([1, 2, 3, 4], np.int8))
    reverse = task_of(
        LoopSpec("row", 2),
        lane(4),
        data=Operand(x + 3, I8, {"f": -1}),
        result=Operand(OUT, I8, {"row": 4, "f": 1}),
        alu=ADD,
    )
    double = task_of(
        lane(8),
        data=Operand(OUT, I8, {"f": 1}),
        weight=Operand(memory.put(np.array([2], np.int8)), I8),
        result=Operand(OUT, I8, {"f": 1}),
        alu=MAC,
    )
    memory.run(reverse, double)
    assert memory.take(OUT, I8, 8).tolist() == [8, 6, 4, 2, 8, 6, 4, 2]


def test_lanes_beyond_the_extent_and_columns_outside_the_window_are_not_written() -> None:
    memory = Memory()
    x = memory.put(np.arange(10, dtype=np.int8))
    task = task_of(
        lane(10),
        data=Operand(x, I8, {"f": 1}),
        result=Operand(OUT, I8),
        alu=ADD,
        window=OutputWindow(4, 1, 2, 3, 1),
    )
    memory.run(task)
    gap = np.int8(np.uint8(0xA5).view(np.int8))
    assert memory.take(OUT, I8, 9).tolist() == [1, 2, gap, 5, 6, gap, 9, gap, gap]


def test_fills_write_the_low_byte_or_the_word() -> None:
    memory = Memory()
    rows = LoopSpec("row", 2)
    memory.run(
        task_of(rows, lane(3), result=Operand(OUT, I8, {"row": 4, "f": 1}), fill_value=-2),
        task_of(rows, lane(1), result=Operand(OUT + 16, I16, {"row": 4, "f": 2}), fill_value=0x3F80),
    )
    assert memory.take(OUT, U8, 8).tolist() == [254, 254, 254, 0xA5, 254, 254, 254, 0xA5]
    assert memory.take(OUT + 16, I16, 4)[[0, 2]].tolist() == [0x3F80, 0x3F80]


def test_unaligned_addresses_work() -> None:
    memory = Memory()
    x = memory.put(np.array([1.5, -2.0], ml_dtypes.bfloat16), at=0x1001)
    task = task_of(
        lane(2),
        data=Operand(x, BF16, {"f": 2}),
        result=Operand(OUT + 3, FP32, {"f": 4}),
        alu=ADD,
        act=ActConfig(ActMode.NEG),
    )
    memory.run(task)
    assert memory.take(OUT + 3, FP32, 2).tolist() == [-1.5, 2.0]


@pytest.mark.parametrize(("source", "target"), [(NpuConfig().lram_bytes - 3, OUT), (0x800, NpuConfig().lram_bytes - 2)])
def test_a_task_that_leaves_lram_is_refused(source: int, target: int) -> None:
    memory = Memory()
    task = task_of(lane(4), data=Operand(source, I8, {"f": 1}), result=Operand(target, I8, {"f": 1}), alu=ADD)
    with pytest.raises(VerificationError, match="outside LRAM"):
        memory.run(task)
