"""Sums of products on the simulator against truths computed without it: plain loops over numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.npu_model.task_memory import BF16, FP32, I8, I16, I32, MAC, OUT, U8, Memory, lane, task_of
from torq_byoc.kernels.dsl import LoopSpec, Operand
from torq_byoc.npu_model.isa import (
    ActConfig,
    AluConfig,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    Tag,
)


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
    task = task_of(
        lane(rows * frame),
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
    task = task_of(
        lane(8),
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
    task = task_of(
        lane(4),
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
    task = task_of(
        lane(30),
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
    task = task_of(
        lane(20),
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
    task = task_of(
        lane(5),
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
    task = task_of(
        lane(2),
        LoopSpec("t", 4, Role.REDUCE),
        data=Operand(x, I8, {"f": 1, "t": 2}),
        result=Operand(OUT, I16, {"f": 2}),
        alu=AluConfig(Op0.DBYP, Op1.SACC),
    )
    memory.run(task)
    assert memory.take(OUT, I16, 2).tolist() == [10 - 1 + 100 - 5, 20 - 2 + 50 - 5]
