"""Passes that move elements or work before others leave no layer compared with the wrong tensor."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.accuracy.models import data, graph
from torq_byoc.accuracy.check import check
from torq_byoc.accuracy.stages import stages_of
from torq_byoc.accuracy.verdict.verdict import is_defect
from torq_byoc.compilation.options import Options


def _channels_last_flatten() -> onnx.ModelProto:
    """Conv, transposition to channels-last, flatten, dense: the weights are moved in place of the tensor."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(0, 0.3, (5, 3, 3, 3)).astype(np.float32),
        "fc": rng.normal(0, 0.3, (5 * 8 * 6, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["c"], ["t"], "last", perm=[0, 2, 3, 1]),
        helper.make_node("Flatten", ["t"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "fc"], ["y"], "dense"),
    ]
    return graph(nodes, constants)


def _pool_after_function(op: str) -> onnx.ModelProto:
    """Conv, a function that never falls, max pool: the pool goes first."""
    rng = np.random.default_rng(1)
    constants = {"w": rng.normal(0, 0.3, (5, 3, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node(op, ["c"], ["a"], "function"),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["y"], "mean"),
    ]
    return graph(nodes, constants)


def _shuffle() -> onnx.ModelProto:
    """A channel shuffle that the convolution before it absorbs."""
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.normal(0, 0.3, (6, 3, 3, 3)).astype(np.float32),
        "split": np.array([1, 2, 3, 8, 6], np.int64),
        "join": np.array([1, 6, 8, 6], np.int64),
        "d": rng.normal(0, 0.3, (6, 1, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "split"], ["s"], "split_channels"),
        helper.make_node("Transpose", ["s"], ["t"], "swap", perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["t", "join"], ["j"], "join_channels"),
        helper.make_node("Conv", ["j", "d"], ["y"], "depthwise", group=6),
    ]
    return graph(nodes, constants)


def _equal_parts() -> onnx.ModelProto:
    """A split whose results have one shape and one scale."""
    constants = {"w": np.random.default_rng(3).normal(0, 0.3, (6, 3, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Split", ["c"], ["a", "b", "d"], "split", axis=1),
        helper.make_node("Sub", ["a", "b"], ["e"], "difference"),
        helper.make_node("Mul", ["e", "d"], ["y"], "product"),
    ]
    return graph(nodes, constants)


MODELS = {
    "equal parts": _equal_parts,
    "channels-last flatten": _channels_last_flatten,
    "pool after sigmoid": lambda: _pool_after_function("Sigmoid"),
    "pool after tanh": lambda: _pool_after_function("Tanh"),
    "pool after relu": lambda: _pool_after_function("Relu"),
    "channel shuffle": _shuffle,
}


@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_no_false_alarm(name, precision):
    calibration = data(6, seed=1) if precision == "int8" else None
    stages = stages_of(MODELS[name](), Options(precision=precision, calibration=calibration, effort=0), name=name)
    result = check(stages, data(3, seed=4))
    assert result.passed, result.misses
    assert not any(map(is_defect, result.deviations))
    assert all(row.rounding.worst <= 1 for row in result.layers if row.rounding)
