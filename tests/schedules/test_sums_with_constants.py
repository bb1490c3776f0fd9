"""Sums whose constants become part of the bias: their values decide the form, so they tell two nodes apart."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.infra import check_program
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.signature import exact_signature, signature

CONFIG = NpuConfig()
SHAPE = (1, 12, 9, 10)
UNIFORM = np.full((1, 12, 1, 1), 10, np.int8)
VARYING = np.arange(-5, 7, dtype=np.int8).reshape(1, 12, 1, 1) * 9


def sums(constants: list[np.ndarray], weights: tuple[int, int] = (1, 1), bias: int = 0) -> OpGraph:
    builder = GraphBuilder("sums")
    x = builder.input("x", SHAPE, DType.INT8)
    for value in constants:
        constant = builder.constant(value)
        rescale = Rescale(np.array([bias], np.int32), np.array([1 << 20], np.int32), 21)
        x = builder.emit("sum2", [x, constant], SHAPE, DType.INT8, attrs={"weights": weights}, rescale=rescale)
    builder.output(x)
    return builder.finish()


@pytest.mark.parametrize("constants", [[UNIFORM, VARYING], [VARYING, UNIFORM], [UNIFORM * 0, VARYING, UNIFORM]])
@pytest.mark.parametrize("weights", [(1, 1), (1, -1), (5, 1)])
def test_neighbours_of_other_forms_compile(constants: list[np.ndarray], weights: tuple[int, int]) -> None:
    check_program(sums(constants, weights), CONFIG)


@pytest.mark.parametrize("key", [signature, exact_signature])
def test_forms_have_keys_of_their_own(key) -> None:
    graph = sums([UNIFORM, VARYING, UNIFORM + 1])
    first, second, third = (key(graph, node) for node in graph.nodes)
    assert first == third != second
    divisible, other = sums([UNIFORM], (5, 1)), sums([UNIFORM + 1], (5, 1))
    assert key(divisible, divisible.nodes[0]) != key(other, other.nodes[0])
