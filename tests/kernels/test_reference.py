"""Whole graphs by ``evaluate``, against numpy written out step by step."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.errors import CalibrationError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import registered_ops
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.dtypes import DType

DOCUMENTED = (
    "act bitcast broadcast compare concat conv2d matmul maximum maxpool minimum mul pad reduce reshape "
    "resize_nearest scale_rows slice sum2 sumpool table transpose"
)


def test_every_documented_operator_has_a_kernel():
    assert set(DOCUMENTED.split()) <= set(registered_ops())


def one(scale: int, shift: int, **rest) -> Rescale:
    return Rescale(np.zeros(1, np.int32), np.array([scale], np.int32), shift, **rest)


def residual_block() -> GraphBuilder:
    """relu(x), doubled by a constant, added to x, padded, summed over rows."""
    builder = GraphBuilder("block")
    x = builder.input("x", (2, 3, 4), DType.INT8)
    relu = builder.emit("act", [x], (2, 3, 4), DType.INT8, rescale=one(1, 0, clip_min=0), hint="relu")
    gain = builder.constant(np.array([1, -2, 3], np.int8).reshape(1, 3, 1), "gain")
    scaled = builder.emit("mul", [relu, gain], (2, 3, 4), DType.INT8, hint="scaled")
    total = builder.emit("sum2", [x, scaled], (2, 3, 4), DType.INT8, attrs={"weights": (1, 1)}, hint="total")
    padded = builder.emit(
        "pad",
        [total],
        (2, 5, 4),
        DType.INT8,
        attrs={"before": (0, 1, 0), "after": (0, 1, 0), "value": 9},
        hint="padded",
    )
    rows = builder.emit("reduce", [padded], (2, 4), DType.INT32, attrs={"kind": "sum", "axes": (1,)}, hint="rows")
    builder.output(rows)
    return builder


def test_every_tensor_of_a_graph():
    graph = residual_block().finish()
    x = np.random.default_rng(2).integers(-128, 128, (2, 3, 4)).astype(np.int8)
    got = evaluate(graph, {"x": x})
    relu = np.maximum(x, 0)
    scaled = np.clip(relu.astype(int) * np.array([1, -2, 3]).reshape(1, 3, 1), -128, 127)
    total = np.clip(x.astype(int) + scaled, -128, 127)
    padded = np.pad(total, ((0, 0), (1, 1), (0, 0)), constant_values=9)
    want = {"x": x, "relu": relu, "scaled": scaled, "total": total, "padded": padded, "rows": padded.sum(axis=1)}
    assert set(got) == {*want, "gain"}
    for name, value in want.items():
        assert got[name].dtype == graph.tensors[name].dtype.numpy
        np.testing.assert_array_equal(got[name], value)


def test_evaluation_leaves_its_inputs_alone():
    graph = residual_block().finish()
    x = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    x.flags.writeable = False
    evaluate(graph, {"x": x})
    assert np.array_equal(x.reshape(-1), np.arange(24))
    assert set(graph.constants) == {"gain"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "no value for input x"),
        ({"x": np.zeros((2, 3, 4), np.int16)}, "int16"),
        ({"x": np.zeros((2, 12), np.int8)}, "[2, 12]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(CalibrationError) as caught:
        evaluate(residual_block().finish(), inputs)
    assert message in caught.value.what
    assert caught.value.where == "x"
