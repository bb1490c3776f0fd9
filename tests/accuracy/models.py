"""Small models and data for the tests of the accuracy check."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.compilation.options import Options

SHAPE = (1, 3, 8, 6)


def graph(
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, np.ndarray],
    outputs: tuple[str, ...] = ("y",),
    shape: tuple[int, ...] = SHAPE,
) -> onnx.ModelProto:
    """A model with the float input x."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def detector(seed: int = 0) -> onnx.ModelProto:
    """A detector's head: boxes in pixels and class scores below one, concatenated."""
    rng = np.random.default_rng(seed)
    constants = {
        "w": rng.normal(0, 0.4, (8, 3, 3, 3)).astype(np.float32),
        "wb": rng.normal(0, 0.3, (4, 8, 1, 1)).astype(np.float32),
        "wc": rng.normal(0, 0.3, (5, 8, 1, 1)).astype(np.float32),
        "bc": np.full(5, -4, np.float32),
        "size": np.float32(640),
        "form": np.array([1, 9, -1], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "wb"], ["b0"], "box_conv"),
        helper.make_node("Sigmoid", ["b0"], ["b1"], "box_sigmoid"),
        helper.make_node("Mul", ["b1", "size"], ["box"], "box_scale"),
        helper.make_node("Conv", ["r", "wc", "bc"], ["k0"], "class_conv"),
        helper.make_node("Sigmoid", ["k0"], ["cls"], "class_sigmoid"),
        helper.make_node("Concat", ["box", "cls"], ["both"], "concat", axis=1),
        helper.make_node("Reshape", ["both", "form"], ["y"], "reshape"),
    ]
    return graph(nodes, constants)


def chain(seed: int = 0) -> onnx.ModelProto:
    """conv -> relu -> conv -> relu -> mean over the plane -> dense, 6 results."""
    rng = np.random.default_rng(seed)
    constants = {
        "w1": rng.normal(0, 0.3, (7, 3, 3, 3)).astype(np.float32),
        "b1": rng.normal(0, 0.2, 7).astype(np.float32),
        "w2": rng.normal(0, 0.2, (9, 7, 3, 3)).astype(np.float32),
        "fc": rng.normal(0, 0.5, (9, 6)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2"),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "fc"], ["y"], "dense"),
    ]
    return graph(nodes, constants)


def data(count: int = 4, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> dict[str, np.ndarray]:
    """Samples; one channel is twice as large as the others."""
    values = np.random.default_rng(seed).normal(0, 1, (count, *shape[1:])).astype(np.float32)
    values[:, 0] *= 2
    return {"x": values}


@functools.cache
def stages(name: str, precision: str = "int8") -> Stages:
    """Stages of one of the models above, calibrated on ``data``; not to be changed.

    They are quantized as they are: rewrites would cure the detector.
    """
    model = {"detector": detector, "chain": chain}[name]()
    calibration = data(8, seed=1) if precision != "bf16" else None
    options = Options(precision=precision, calibration=calibration, effort=0, disabled_rewrites=("concat_in_float",))
    return stages_of(model, options, name=name)
