"""Our own operators of the evaluator against onnxruntime, over the corners of their attributes."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from torq_byoc.quantize.evaluation.fast_pools import AveragePool, GlobalMaxPool, MaxPool
from torq_byoc.quantize.evaluation.response_normalization import LRN

CASES = [
    {"kernel_shape": [3, 3]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [0, 1, 2, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [1, 0, 0, 1]},
    {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [1, 2]},
]


def both(op: str, attributes: dict[str, object], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attributes)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": values})[0]
    evaluator = ReferenceEvaluator(model, new_ops=[MaxPool, AveragePool, GlobalMaxPool, LRN])
    return wanted, evaluator.run(None, {"x": values})[0]


@pytest.mark.parametrize("attributes", CASES)
@pytest.mark.parametrize("shape", [(1, 2, 7, 8), (2, 1, 6, 5)])
def test_max_pool(attributes: dict[str, object], shape: tuple[int, ...]) -> None:
    wanted, found = both("MaxPool", attributes, shape)
    assert np.array_equal(wanted, found)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("attributes", CASES)
def test_average_pool(attributes: dict[str, object], include: int) -> None:
    wanted, found = both("AveragePool", {**attributes, "count_include_pad": include}, (1, 2, 7, 8))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_one_dimension() -> None:
    wanted, found = both("MaxPool", {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}, (1, 3, 9))
    assert np.array_equal(wanted, found)


@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 2, 5, 4), (2, 1, 3, 2, 4)])
def test_global_max_pool(shape: tuple[int, ...]) -> None:
    wanted, found = both("GlobalMaxPool", {}, shape)
    assert np.array_equal(wanted, found)


@pytest.mark.parametrize("size", [1, 3, 5, 9])
@pytest.mark.parametrize("shape", [(1, 7, 4, 3), (3, 4, 2, 5)])
def test_response_normalization(size: int, shape: tuple[int, ...]) -> None:
    """Every channel of every image, whatever their numbers."""
    wanted, found = both("LRN", {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 1.5}, shape)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-7)
