"""table against an interpolation written out here, and against the functions it stands for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.infra import CONFIG, random_values
from tests.kernels.infra_elementwise import check_everywhere, cycles, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType

RNG = np.random.default_rng(14)


def looked_up(index: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Interpolation of int16 indices, one element at a time."""
    out = []
    for v in index.reshape(-1).tolist():
        base, slope = table[(v >> 7) + 256].tolist()
        out.append(base + ((slope * (v & 127) + 64) >> 7))
    return np.array(out).reshape(index.shape)


def test_interpolated_table_over_the_whole_int16_range():
    x = np.concatenate([np.arange(-32768, 32768, 97), [-32768, 32767, 0, -1, 127, 128]]).astype(np.int16)
    table = RNG.integers(-32768, 32768, (512, 2)).astype(np.int16)
    want = np.clip(looked_up(x, table) + 7, -20000, 20000).astype(np.int16)
    case = single("table", [x], x.shape, DType.INT16, table=table, out_zero_point=7, clip_min=-20000, clip_max=20000)
    check_everywhere(*case, want)


@pytest.mark.parametrize("kind", [DType.INT8, DType.UINT8])
def test_byte_table_is_a_map_of_256_values(kind):
    """Index = (code - lowest) * 128 - 2^15 picks entry code - lowest without interpolation."""
    low, _ = kind.integer_range
    x = random_values(RNG, (2, 3, 5, 7), kind)
    values = RNG.integers(-128, 128, 256)
    table = np.zeros((512, 2), np.int16)
    table[:256, 0] = values
    rescale = Rescale(np.array([-low - 256], np.int32), np.array([128], np.int32))
    case = single("table", [x], x.shape, DType.INT8, rescale=rescale, table=table)
    check_everywhere(*case, values[x.astype(int) - low].astype(np.int8))


def test_index_rescale_saturates_to_int16():
    x = np.array([-128, -1, 0, 1, 127], np.int8)
    table = np.stack([np.arange(512), np.zeros(512)], axis=1).astype(np.int16)
    rescale = Rescale(np.array([0], np.int32), np.array([1 << 12], np.int32))
    case = single("table", [x], x.shape, DType.INT16, rescale=rescale, table=table)
    check_everywhere(*case, np.array([0, 256 - 32, 256, 256 + 32, 511], np.int16))


def test_two_results_a_cycle():
    case = single("table", [np.zeros((8, 100), np.int8)], (8, 100), DType.INT8, table=np.zeros((512, 2), np.int16))
    assert cycles(*case) == 26 * 64 // 2 / 2


@pytest.mark.parametrize(
    ("table", "rescale", "kind", "reason"),
    [
        (np.zeros((256, 2), np.int16), None, np.int8, "(256, 2)"),
        (np.zeros((512, 2), np.int16), Rescale(np.zeros(1, np.int32), zero_point=3), np.int8, "out_zero_point"),
        (np.zeros((512, 2), np.int16), None, np.float32, "float32"),
    ],
)
def test_refusals_give_a_reason(table, rescale, kind, reason):
    graph, node, _ = single("table", [np.zeros(4, kind)], (4,), DType.INT8, rescale=rescale, table=table)
    assert reason in kernel_for("table").unsupported(graph, node, CONFIG)
