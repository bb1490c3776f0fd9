"""Slice tasks against truths computed without the simulator: hand-made numbers and plain loops over numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from torq_byoc.errors import VerificationError
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.execute import execute_task
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
    SliceTask,
    Tag,
)

MAC, ADD = AluConfig(Op0.MUL, Op1.ACC), AluConfig(Op0.DBYP, Op1.ACC)
I8, I16, I32, U8, BF16, FP32 = DType.INT8, DType.INT16, DType.INT32, DType.UINT8, DType.BF16, DType.FP32
OUT = 300_000
BIASES = 290_000


class Memory:
    """An LRAM to put arrays into and to take results from."""

    def __init__(self) -> None:
        self.bytes = np.full(NpuConfig().lram_bytes, 0xA5, np.uint8)
        self._next = 0x800

    def put(self, array: np.ndarray, at: int | None = None) -> int:
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        address = self._next if at is None else at
        self.bytes[address : address + raw.size] = raw
        if at is None:
            self._next += -(-raw.size // 8) * 8
        return address

    def take(self, address: int, dtype: DType, *shape: int) -> np.ndarray:
        count = int(np.prod(shape)) * dtype.size
        return self.bytes[address : address + count].view(dtype.numpy).reshape(shape)

    def run(self, *tasks: SliceTask) -> None:
        for task in tasks:
            execute_task(task, self.bytes)


def _build(*loops: LoopSpec, **fields) -> SliceTask:
    return build(LoopNest(tuple(loops), **fields), NpuConfig())


def _lane(extent: int) -> LoopSpec:
    return LoopSpec("f", extent, Role.LANE, Tag.FLAT)


def _convolve(x: np.ndarray, weights: np.ndarray, stride: int, pad: int, dilation: int, value: float) -> np.ndarray:
    """Plain convolution of [C, H, W] by [O, C, K, K] in float64, which is exact here."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad)), constant_values=value)
    kernel = weights.shape[-1]
    span = (kernel - 1) * dilation + 1
    rows, columns = ((extent - span) // stride + 1 for extent in padded.shape[1:])
    result = np.zeros((weights.shape[0], rows, columns))
    for y in range(rows):
        for c in range(columns):
            patch = padded[:, y * stride : y * stride + span : dilation, c * stride : c * stride + span : dilation]
            result[:, y, c] = np.einsum("ckl,ockl->o", patch, weights.astype(np.float64))
    return result


def _phases(x: np.ndarray, stride: int) -> np.ndarray:
    """[C, H, W] as [py, px, C, ceil(H/s), ceil(W/s)]."""
    channels, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, -height % stride), (0, -width % stride)))
    return np.stack([np.stack([padded[:, y::stride, c::stride] for c in range(stride)]) for y in range(stride)])


@pytest.mark.parametrize(
    ("stride", "dilation", "pad", "kernel", "size"),
    [(1, 1, 1, 3, (5, 7)), (1, 2, 2, 3, (6, 9)), (2, 1, 1, 3, (7, 8)), (2, 1, 0, 1, (6, 6)), (2, 1, 2, 5, (9, 7))],
)
def test_planar_convolutions(stride: int, dilation: int, pad: int, kernel: int, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(kernel)
    channels, outputs, value = 3, 6, 7
    x = rng.integers(-128, 128, (channels, *size)).astype(np.int8)
    weights = rng.integers(-128, 128, (outputs, channels, kernel, kernel)).astype(np.int8)
    expected = _convolve(x, weights, stride, pad, dilation, value)
    rows, columns = expected.shape[1:]
    memory, phased = Memory(), _phases(x, stride)
    height, width = phased.shape[-2:]
    frame = max(width, columns)
    stored = np.zeros((stride, stride, channels, height, frame), np.int8)
    stored[..., :width] = phased
    plane_bytes = height * frame
    task = _build(
        _lane(rows * frame),
        LoopSpec("o", outputs, Role.GROUP, Tag.OUT_CHANNEL),
        LoopSpec("c", channels, Role.REDUCE, Tag.IN_CHANNEL),
        LoopSpec("i", kernel, Role.REDUCE, Tag.KERNEL_ROW),
        LoopSpec("j", kernel, Role.REDUCE, Tag.KERNEL_COLUMN),
        data=Operand(memory.put(stored), I8, {"c": plane_bytes}),
        weight=Operand(
            memory.put(weights.transpose(1, 2, 3, 0)),
            I8,
            {"c": kernel**2 * outputs, "i": kernel * outputs, "j": outputs, "o": 1},
        ),
        result=Operand(OUT, I32, {"o": rows * columns * 4}),
        alu=MAC,
        plane=Plane(
            *size,
            frame_width=frame,
            row_stride=frame,
            stride_y=stride,
            stride_x=stride,
            phase_stride_y=stride * channels * plane_bytes,
            phase_stride_x=channels * plane_bytes,
            dilation_y=dilation,
            dilation_x=dilation,
            pad_top=pad,
            pad_left=pad,
            pad_value=value,
        ),
        window=OutputWindow(frame, 0, columns, columns * 4, 4),
        weights=4,
    )
    memory.run(task)
    assert np.array_equal(memory.take(OUT, I32, outputs, rows, columns), expected)


@pytest.mark.parametrize("steps", [900, 1024, 1025, 4608])
def test_long_sums_of_extreme_products_are_exact(steps: int) -> None:
    # Every product is 2^14 but one, so a sum of more than 1024 of them plus 1 is no fp32.
    memory = Memory()
    x = np.full((steps, 8), -128, np.int8)
    weights = np.full((steps, 4), -128, np.int8)
    x[steps // 2], weights[steps // 2] = 1, 1
    task = _build(
        _lane(8),
        LoopSpec("o", 4, Role.GROUP),
        LoopSpec("k", steps, Role.REDUCE),
        data=Operand(memory.put(x), I8, {"k": 8, "f": 1}),
        weight=Operand(memory.put(weights), I8, {"k": 4, "o": 1}),
        result=Operand(OUT, I32, {"o": 32, "f": 4}),
        alu=MAC,
        weights=4,
    )
    memory.run(task)
    assert np.array_equal(memory.take(OUT, I32, 4, 8), np.full((4, 8), (steps - 1) * 2**14 + 1))


def test_int16_products_sum_beyond_thirty_two_bits() -> None:
    memory, steps = Memory(), 300
    x = np.full((steps, 4), -32768, np.int16)
    x[-1] = 1
    weights = np.full((steps, 4), -32768, np.int16)
    weights[-1] = 1
    pairs = memory.put(np.array([5, 3], np.int32))
    task = _build(
        _lane(4),
        LoopSpec("o", 4, Role.GROUP),
        LoopSpec("k", steps, Role.REDUCE),
        data=Operand(memory.put(x), I16, {"k": 8, "f": 2}),
        weight=Operand(memory.put(weights), I16, {"k": 8, "o": 2}),
        bias=Operand(pairs, I32),
        result=Operand(OUT, I32, {"o": 16, "f": 4}),
        alu=MAC,
        act=ActConfig(shift=10, sum_bits=48),
        weights=4,
    )
    memory.run(task)
    total = ((299 * 2**30 + 1 + 5) * 3 + 2**9) >> 10
    assert memory.take(OUT, I32, 16).tolist() == [total] * 16


def test_depthwise_groups_keep_their_channels_apart() -> None:
    rng = np.random.default_rng(5)
    channels, size = 6, (5, 6)
    x = rng.integers(0, 256, (channels, *size)).astype(np.uint8)
    weights = rng.integers(-128, 128, (channels, 1, 3, 3)).astype(np.int8)
    expected = np.stack([_convolve(x[c : c + 1], weights[c : c + 1], 1, 1, 1, 128)[0] for c in range(channels)])
    memory = Memory()
    task = _build(
        _lane(30),
        LoopSpec("g", channels, Role.GROUP, Tag.GROUP),
        LoopSpec("i", 3, Role.REDUCE, Tag.KERNEL_ROW),
        LoopSpec("j", 3, Role.REDUCE, Tag.KERNEL_COLUMN),
        data=Operand(memory.put(x), U8, {"g": 30}),
        weight=Operand(memory.put(weights), I8, {"g": 9, "i": 3, "j": 1}),
        result=Operand(OUT, I32, {"g": 120, "f": 4}),
        alu=MAC,
        plane=Plane(*size, frame_width=6, row_stride=6, pad_top=1, pad_left=1, pad_value=128),
        weights=4,
    )
    memory.run(task)
    assert np.array_equal(memory.take(OUT, I32, channels, *size), expected)


def test_bf16_matrix_product_is_the_rounded_exact_sum() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(40, 20)).astype(ml_dtypes.bfloat16)
    weights = rng.normal(size=(40, 8)).astype(ml_dtypes.bfloat16)
    biases = rng.normal(size=8).astype(np.float32)
    memory = Memory()
    task = _build(
        _lane(20),
        LoopSpec("o", 8, Role.GROUP),
        LoopSpec("k", 40, Role.REDUCE),
        data=Operand(memory.put(x), BF16, {"k": 40, "f": 2}),
        weight=Operand(memory.put(weights), BF16, {"k": 16, "o": 2}),
        bias=Operand(memory.put(biases), FP32, {"o": 4}),
        result=Operand(OUT, BF16, {"o": 40, "f": 2}),
        alu=MAC,
        act=ActConfig(clip_min=0.0, clip_max=6.0),
        weights=4,
    )
    memory.run(task)
    exact = weights.astype(np.float64).T @ x.astype(np.float64)
    expected = np.clip(exact.astype(np.float32) + biases[:, None], 0, 6).astype(ml_dtypes.bfloat16)
    assert np.array_equal(memory.take(OUT, BF16, 8, 20), expected)


def test_two_tensors_are_added_with_int16_weights() -> None:
    memory = Memory()
    a = np.array([100, -100, 127, -128, 0], np.int8)
    b = np.array([27, -28, 127, -128, 1], np.int8)
    first, second = memory.put(a), memory.put(b)
    task = _build(
        _lane(5),
        LoopSpec("t", 2, Role.REDUCE),
        data=Operand(first, I8, {"f": 1, "t": second - first}),
        weight=Operand(memory.put(np.array([4096, 2048], np.int16)), I16, {"t": 2}),
        result=Operand(OUT, I8, {"f": 1}),
        alu=MAC,
        act=ActConfig(shift=12, zero_point=-1, sum_bits=48),
    )
    memory.run(task)
    # 100 + 13.5 -> 114 - 1; -100 - 14 - 1; 127 + 63.5 saturates; 0.5 -> 1 - 1
    assert memory.take(OUT, I8, 5).tolist() == [113, -115, 127, -128, 0]


def test_alternating_sums_subtract_odd_steps() -> None:
    memory = Memory()
    x = memory.put(np.array([[10, 20], [1, 2], [100, 50], [5, 5]], np.int8))
    task = _build(
        _lane(2),
        LoopSpec("t", 4, Role.REDUCE),
        data=Operand(x, I8, {"f": 1, "t": 2}),
        result=Operand(OUT, I16, {"f": 2}),
        alu=AluConfig(Op0.DBYP, Op1.SACC),
    )
    memory.run(task)
    assert memory.take(OUT, I16, 2).tolist() == [10 - 1 + 100 - 5, 20 - 2 + 50 - 5]


def test_max_pool_writes_the_phase_planes_that_a_stride_two_reader_wants() -> None:
    rng = np.random.default_rng(8)
    x = rng.integers(-128, 128, (1, 5, 6)).astype(np.int8)
    padded = np.pad(x[0], 1, constant_values=-128)
    expected = np.stack([padded[i : i + 5, j : j + 6] for i in range(3) for j in range(3)]).max(axis=0)
    memory = Memory()
    task = _build(
        _lane(30),
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
        task = _build(
            _lane(12),
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
        task = _build(
            _lane(4),
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
    task = _build(
        _lane(3),
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
    task = _build(
        _lane(3),
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
    task = _build(
        _lane(4),
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
    reverse = _build(
        LoopSpec("row", 2),
        _lane(4),
        data=Operand(x + 3, I8, {"f": -1}),
        result=Operand(OUT, I8, {"row": 4, "f": 1}),
        alu=ADD,
    )
    double = _build(
        _lane(8),
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
    task = _build(
        _lane(10),
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
        _build(rows, _lane(3), result=Operand(OUT, I8, {"row": 4, "f": 1}), fill_value=-2),
        _build(rows, _lane(1), result=Operand(OUT + 16, I16, {"row": 4, "f": 2}), fill_value=0x3F80),
    )
    assert memory.take(OUT, U8, 8).tolist() == [254, 254, 254, 0xA5, 254, 254, 254, 0xA5]
    assert memory.take(OUT + 16, I16, 4)[[0, 2]].tolist() == [0x3F80, 0x3F80]


def test_unaligned_addresses_work() -> None:
    memory = Memory()
    x = memory.put(np.array([1.5, -2.0], ml_dtypes.bfloat16), at=0x1001)
    task = _build(
        _lane(2),
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
    task = _build(_lane(4), data=Operand(source, I8, {"f": 1}), result=Operand(target, I8, {"f": 1}), alu=ADD)
    with pytest.raises(VerificationError, match="outside LRAM"):
        memory.run(task)
