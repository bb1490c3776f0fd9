"""Movement kernels: every byte arrives where numpy puts it, whatever the element size and the tiling."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.infra import CONFIG
from tests.kernels.infra_elementwise import check_everywhere, cycles, run, single
from torq_byoc.kernels.kernel import Region, kernel_for
from torq_byoc.npu_model.dtypes import DType

RNG = np.random.default_rng(16)
KINDS = [DType.INT8, DType.UINT8, DType.INT16, DType.BF16, DType.INT32, DType.FP32]


def patterns(shape, kind: DType) -> np.ndarray:
    """Random bits without NaNs (those are tested by themselves)."""
    raw = RNG.integers(0, 256, (*shape, kind.size), np.uint8)
    values = raw.view(kind.numpy)[..., 0]
    if not kind.is_float:
        return values
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(values), np.asarray(1, values.dtype), values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0, 0, 1, 2), (0, 0, 3, 0)),
        ((1, 0, 0, 0), (0, 2, 0, 0)),
        ((0, 0, 0, 0), (0, 0, 0, 1)),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
    ],
)
def test_pad(kind, before, after):
    x = patterns((2, 3, 4, 5), kind)
    value = {1: 37, 2: -513, 4: 0x1234567}[kind.size] if kind is not DType.UINT8 else 201
    want = np.pad(x, tuple(zip(before, after, strict=True)), constant_values=np.asarray(value).astype(x.dtype))
    check_everywhere(*single("pad", [x], want.shape, kind, before=before, after=after, value=value), want)


@pytest.mark.parametrize("value", [0.0, -0.0, -np.inf, 1.0, np.float32(-3.4e38)])
@pytest.mark.parametrize("kind", [DType.BF16, DType.FP32])
def test_pad_float_constants(kind, value):
    x = patterns((3, 4), kind)
    want = np.pad(x, ((1, 0), (0, 2)), constant_values=np.asarray(value).astype(x.dtype))
    check_everywhere(*single("pad", [x], want.shape, kind, before=(1, 0), after=(0, 2), value=value), want)


def test_pad_tile_without_input_reads_nothing():
    graph, node, _ = single(
        "pad", [np.zeros((4, 4), np.int8)], (9, 4), DType.INT8, before=(5, 0), after=(0, 0), value=1
    )
    kernel = kernel_for("pad")
    assert kernel.input_region(graph, node, 0, Region((0, 0), (5, 4))).size == 0
    assert kernel.input_region(graph, node, 0, Region((4, 1), (3, 2))) == Region((0, 1), (2, 2))


@pytest.mark.parametrize("kind", [DType.INT8, DType.INT16, DType.FP32])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat(kind, axis):
    extents = (3, 1, 5)
    parts = []
    for extent in extents:
        shape = [2, 4, 3]
        shape[axis] = extent
        parts.append(patterns(shape, kind))
    want = np.concatenate(parts, axis=axis)
    check_everywhere(*single("concat", parts, want.shape, kind, axis=axis, constants=(1,)), want)


def test_concat_tile_skips_inputs_it_does_not_touch():
    graph, node, _ = single("concat", [np.zeros((2, 3), np.int8)] * 2, (4, 3), DType.INT8, axis=0)
    regions = [kernel_for("concat").input_region(graph, node, position, Region((2, 0), (1, 3))) for position in (0, 1)]
    assert [region.size for region in regions] == [0, 3]
    assert regions[1] == Region((0, 0), (1, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("begin", "step", "shape"),
    [
        ((0, 1, 2, 3), (1, 1, 1, 1), (2, 3, 4, 4)),
        ((1, 0, 0, 0), (1, 2, 3, 2), (1, 2, 3, 4)),
        ((0, 3, 0, 6), (1, 1, 6, 1), (2, 1, 2, 1)),
    ],
)
def test_slice(kind, begin, step, shape):
    x = patterns((2, 4, 7, 8), kind)
    window = tuple(slice(b, b + (n - 1) * s + 1, s) for b, s, n in zip(begin, step, shape, strict=True))
    check_everywhere(*single("slice", [x], shape, kind, begin=begin, step=step), x[window])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3), (1, 0, 2, 3), (0, 1, 2, 3)])
def test_transpose(kind, perm):
    x = patterns((2, 3, 4, 6), kind)
    check_everywhere(*single("transpose", [x], x.transpose(perm).shape, kind, perm=perm), x.transpose(perm))


def test_transpose_of_six_axes():
    x = patterns((2, 3, 2, 2, 3, 2), DType.INT8)
    perm = (0, 1, 4, 2, 5, 3)
    check_everywhere(*single("transpose", [x], x.transpose(perm).shape, DType.INT8, perm=perm), x.transpose(perm))


def test_transpose_keeps_runs_together():
    def cost(shape, perm, kind):
        x = np.zeros(shape, kind)
        return cycles(*single("transpose", [x], x.transpose(perm).shape, DType.of(x.dtype), perm=perm))

    n = 32 * 32 * 16
    assert cost((32, 32, 16), (1, 0, 2), np.int8) == n // 16  # runs of 16 bytes
    assert cost((32, 128, 4), (1, 0, 2), np.int8) == n // 16  # four-byte units, four addresses a cycle
    assert cost((128, 128), (1, 0), np.int8) == 20 * 16  # blocks of 32 rows of 32 bytes
    assert cost((300, 384), (1, 0), np.int8) == 20 * 10 * 12  # hardware doc 11.2: 2,400 cycles
    assert cost((128, 128), (1, 0), np.int16) == 20 * 32
    assert cost((128, 128), (1, 0), np.int32) == n // 4  # no blocks of four bytes: four addresses a cycle
    assert cost((2, 128), (1, 0), np.int16) == 128  # nor of two rows: two addresses a cycle to write to


@pytest.mark.parametrize("kind", [DType.INT8, DType.UINT8, DType.INT16])
@pytest.mark.parametrize("columns", [1, 5, 80])
def test_interleaving(kind, columns):
    """The last step of a transposed convolution of stride 2: phases of rows and columns become a plane."""
    x, perm = patterns((1, 2, 2, 2, 3, columns), kind), (0, 1, 4, 2, 5, 3)
    check_everywhere(*single("transpose", [x], x.transpose(perm).shape, kind, perm=perm), x.transpose(perm))


def test_bytes_are_interleaved_sixteen_a_cycle():
    x, perm = np.zeros((1, 4, 2, 2, 16, 64), np.int8), (0, 1, 4, 2, 5, 3)
    assert cycles(*single("transpose", [x], x.transpose(perm).shape, DType.INT8, perm=perm)) == x.size // 16


@pytest.mark.parametrize("kind", [DType.INT8, DType.UINT8, DType.INT16, DType.BF16])
@pytest.mark.parametrize(("shape", "perm"), [((3, 45, 70), (0, 2, 1)), ((65, 7, 9), (1, 2, 0)), ((4, 33), (1, 0))])
def test_transpose_in_blocks(kind, shape, perm):
    x = patterns(shape, kind)
    check_everywhere(*single("transpose", [x], x.transpose(perm).shape, kind, perm=perm), x.transpose(perm))


@pytest.mark.parametrize("kind", [DType.INT8, DType.BF16, DType.INT32])
@pytest.mark.parametrize(
    ("source", "target"),
    [((3, 1, 5), (3, 4, 5)), ((5,), (2, 3, 5)), ((2, 3, 1), (2, 3, 9)), ((), (4, 3)), ((1, 6), (1, 6))],
)
def test_broadcast(kind, source, target):
    x = np.asarray(patterns(source or (1,), kind).reshape(source))
    check_everywhere(*single("broadcast", [x], target, kind), np.broadcast_to(x, target))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (1, 2), (2, 3), (1, 4), (1, 1), (4, 4)])
def test_resize_nearest(kind, factors):
    x = patterns((1, 3, 4, 5), kind)
    want = x.repeat(factors[0], axis=2).repeat(factors[1], axis=3)
    check_everywhere(*single("resize_nearest", [x], want.shape, kind, factors=factors), want)


def test_doubling_writes_two_bytes_a_result():
    x = np.zeros((1, 4, 8, 64), np.int8)
    case = single("resize_nearest", [x], (1, 4, 16, 128), DType.INT8, factors=(2, 2))
    assert cycles(*case) == x.size * 4 // 32


@pytest.mark.parametrize(("op", "out"), [("reshape", DType.BF16), ("bitcast", DType.INT16)])
def test_aliases_keep_every_bit(op, out):
    x = RNG.integers(0, 1 << 16, (3, 4, 5)).astype(np.uint16).view(ml_dtypes.bfloat16)
    shape = (4, 15) if op == "reshape" else x.shape
    want = x.view(out.numpy).reshape(shape)
    graph, node, values = single(op, [x], shape, out)
    kernel = kernel_for(op)
    assert kernel.tile_steps(graph, node, CONFIG) == (0,) * len(shape)
    assert kernel.unsupported(graph, node, CONFIG) is None
    got = kernel.reference(graph, node, [x])
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))
    check_everywhere(graph, node, values, want)


def test_nan_payloads_survive_a_copy():
    bits = np.array([0x7FC1, 0xFFFF, 0x7F81, 0x8000], np.uint16)
    case = single("transpose", [bits.view(ml_dtypes.bfloat16).reshape(2, 2)], (2, 2), DType.BF16, perm=(1, 0))
    out = run(*case, [[Region.whole((2, 2))]])
    np.testing.assert_array_equal(out.view(np.uint16), bits.reshape(2, 2).T)


@pytest.mark.parametrize("op", ["pad", "concat", "slice", "transpose", "broadcast", "resize_nearest"])
def test_moving_data_changes_no_type(op):
    graph, node, _ = single(op, [np.zeros((1, 1, 2, 2), np.int8)], (1, 1, 2, 2), DType.INT16)
    assert "int8 into int16" in kernel_for(op).unsupported(graph, node, CONFIG)
