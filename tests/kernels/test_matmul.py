"""Matrix products against int64 numpy, whole and cut into tiles and slice parts."""

from __future__ import annotations

import numpy as np
import pytest

import torq_byoc.kernels.matmul  # noqa: F401  (registers the kernel)
from tests.kernels.infra import (
    CONFIG,
    assert_close_bf16,
    brute_rescale,
    node_cycles,
    one_node,
    random_rescale,
    random_values,
    reference,
    run,
    run_scalar,
    split,
    whole,
)
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType

I8, I16, U8, BF = DType.INT8, DType.INT16, DType.UINT8, DType.BF16


class Case:
    """A product with data, and what it must give."""

    def __init__(self, a, b, types=(I8, I8, I8), constant=True, per_column=True, config=CONFIG) -> None:
        rng = np.random.default_rng(5)
        self.a, self.b = random_values(rng, a, types[0]), random_values(rng, b, types[1])
        self.out, self.config = types[2], config
        wide = np.float64 if self.out.is_float else np.int64
        self.acc = self.a.astype(wide) @ self.b.astype(wide)
        self.shape = self.acc.shape
        axis = len(self.shape) - 1 if per_column else None
        reach = float(np.abs(self.acc).max()) + 1
        self.rescale = random_rescale(rng, b[-1] if per_column else 1, axis, reach, self.out)
        if DType.INT16 in types[:2]:
            self.rescale = Rescale(**{**self.rescale.__dict__, "sum_bits": 48})
        second = self.b if constant else (b, types[1])
        self.graph = one_node("matmul", [(a, types[0]), second], self.shape, self.out, {}, self.rescale)
        self.kernel, self.node = kernel_for("matmul"), self.graph.nodes[0]
        self.inputs = [self.a, self.b][: len(self.kernel.tensor_inputs(self.graph, self.node))]

    @property
    def expected(self) -> np.ndarray:
        if self.out.is_float:
            return (self.acc.astype(np.float32) + self.rescale.bias).astype(self.out.numpy)
        return brute_rescale(self.acc, self.rescale, self.out)

    def check(self, actual: np.ndarray) -> None:
        if self.out.is_float:
            assert_close_bf16(actual, self.expected)
        else:
            np.testing.assert_array_equal(actual, self.expected)

    def check_everything(self) -> None:
        assert self.kernel.unsupported(self.graph, self.node, self.config) is None
        self.check(reference(self.graph, [self.a, self.b]))
        self.check(run(self.graph, self.inputs, whole(self.shape), config=self.config))
        steps = self.kernel.tile_steps(self.graph, self.node, self.config)
        rank = len(self.shape)
        halves = [max(s, n // 2 // s * s) for n, s in zip(self.shape, steps, strict=True)]
        for axis in (rank - 2, rank - 1, 0):
            cuts = [
                split(self.shape, self.shape, axis, steps[axis]),
                split(self.shape, halves, axis, steps[axis]),
                split(self.shape, (*self.shape[:-1], steps[-1]), axis, steps[axis]),
            ]
            for cut in cuts:
                self.check(run(self.graph, self.inputs, cut, config=self.config))
            self.check(run(self.graph, self.inputs, cuts[1], whole_inputs=True, config=self.config))


SHAPES = {
    "square": ((9, 20), (20, 70)),
    "one row": ((1, 33), (33, 130)),
    "one of everything": ((1, 1), (1, 1)),
    "narrow": ((10, 7), (7, 3)),
    "batched a": ((2, 3, 6, 11), (11, 65)),
    "batched b": ((5, 4), (3, 4, 66)),
    "both batched": ((2, 1, 5, 8), (3, 8, 67)),
    "unit batch": ((1, 7, 8), (1, 8, 129)),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_shape_in_every_cut(name: str, constant: bool) -> None:
    Case(*SHAPES[name], constant=constant).check_everything()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "types", [(U8, I8, U8), (I8, U8, I8), (I16, I8, I16), (I8, I16, I16), (I16, I16, I16), (BF, BF, BF)]
)
def test_types(types: tuple[DType, ...], constant: bool) -> None:
    Case((2, 6, 19), (19, 70), types, constant, per_column=constant).check_everything()


def test_raw_sums_of_int16_are_48_bits_wide() -> None:
    a = np.full((1, 40), -32768, np.int16)
    b = np.full((40, 3), -32768, np.int16)
    rescale = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32), shift=10, sum_bits=48)
    graph = one_node("matmul", [((1, 40), I16), b], (1, 3), DType.INT32, {}, rescale)
    assert run(graph, [a], whole((1, 3))).tolist() == [[40 * 2**20] * 3]


def test_scalar_interpreter_agrees() -> None:
    for constant in (True, False):
        case = Case((2, 5, 9), (9, 67), constant=constant)
        case.check(run_scalar(case.graph, case.inputs, whole(case.shape)))


def test_columns_are_packed_in_even_blocks() -> None:
    case = Case((1, 16), (16, 1000))
    weights, pairs = case.kernel.constants(case.graph, case.node, CONFIG)
    assert weights.step == pairs.step == 63 and weights.data.shape == (16, 16 * 63)
    np.testing.assert_array_equal(weights.data[1].view(np.int8).reshape(16, 63), case.b[:, 63:126])


def test_long_columns_are_packed_in_blocks_that_fit() -> None:
    small = NpuConfig(lram_bytes=32 * 1024)
    case = Case((9, 700), (700, 37), config=small)
    weights = case.kernel.constants(case.graph, case.node, small)[0]
    assert weights.data.shape[1] <= small.lram_usable // 6
    case.check_everything()


def test_many_rows_keep_the_vector_full_where_fewer_rows_would_not() -> None:
    """So do rows that all fit the accumulators of the slices: their columns come in portions of k."""
    cases = [Case((rows, 3072), (3072, 64)) for rows in (8, 9, 128)]
    widths = [case.kernel.constants(case.graph, case.node, CONFIG)[0].step for case in cases]
    assert widths == [64, 22, 64]


def test_a_reduction_beyond_the_machine_is_named() -> None:
    graph = one_node("matmul", [((1, 65537), I8), ((65537, 1), I8)], (1, 1), I8)
    reason = kernel_for("matmul").unsupported(graph, graph.nodes[0], CONFIG)
    assert reason == "65537 products per output, the limit is 65536"


def test_macs() -> None:
    graph = one_node("matmul", [((2, 3, 5), I8), ((5, 7), I8)], (2, 3, 7), I8)
    assert kernel_for("matmul").macs(graph, graph.nodes[0]) == 2 * 3 * 5 * 7


def test_four_rows_share_a_load() -> None:
    case = Case((64, 128), (128, 128), per_column=False)
    assert node_cycles(case.graph) == 64 // 4 * 128 // 64 * 128
