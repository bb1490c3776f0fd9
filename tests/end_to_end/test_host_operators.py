"""Operators that TVM's importer fails at, or gives another meaning, are right on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import torq_byoc
from tests.end_to_end.host_models import BF16, DOUBLE, F32, assert_like_onnxruntime, noise, refusal, typed_model
from tests.frontend.onnx_tools import node
from torq_byoc.errors import ShapeError


def test_dynamic_quantization_is_exact():
    made = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("DequantizeLinear", ["q", "s", "z"], "y"),
    ]
    model = typed_model(*made, inputs={"x": [3, 5]}, outputs=("q", "s", "z", "y"))
    assert_like_onnxruntime(model, {"x": noise(3, 5).astype(F32)})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_scales_from_run_time_along_an_axis(dtype):
    zeros = np.array([3, 250 if dtype == np.uint8 else -128, 0], dtype)
    made = [
        node("QuantizeLinear", ["x", "s", "z"], "q", axis=1),
        node("DequantizeLinear", ["q", "s", "z"], "y", axis=1),
    ]
    model = typed_model(*made, inputs={"x": [2, 3, 4], "s": [3]}, outputs=("q", "y"), constants={"z": zeros})
    x = noise(2, 3, 4).astype(F32)
    x[0, 1, 0] = 2.5 * 0.25  # a tie
    assert_like_onnxruntime(model, {"x": x, "s": np.array([0.5, 0.25, 0.01], F32)})


@pytest.mark.parametrize(
    ("op", "attrs", "wanted"),
    [("Shape", {}, [2, 1, 7]), ("Shape", {"start": -2, "end": 9}, [1, 7]), ("Size", {}, 14)],
)
def test_shapes_as_results(op, attrs, wanted):
    model = typed_model(
        node("Relu", ["x"], "r"), node(op, ["r"], "y", **attrs), inputs={"x": [2, 1, 7]}, outputs=("r", "y")
    )
    y = torq_byoc.compile(model).run({"x": noise(2, 1, 7).astype(F32)})["y"]
    assert y.tolist() == wanted and y.dtype == np.int64


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("axes", [None, [1, 3]])
def test_mean_variance_normalization(opset, axes):
    attrs = {} if axes is None else {"axes": axes}
    model = typed_model(node("MeanVarianceNormalization", ["x"], "y", **attrs), inputs={"x": [2, 3, 4, 5]}, opset=opset)
    x = noise(2, 3, 4, 5) + 3.0  # off zero, where a difference of two means loses digits
    x = x.astype(F32)
    axis = tuple(axes or (0, 2, 3))
    rounded = x.astype(BF16).astype(np.float64)
    wanted = (rounded - rounded.mean(axis, keepdims=True)) / rounded.std(axis, keepdims=True)
    found = torq_byoc.compile(model).run({"x": x})["y"]
    assert np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()


def test_mean_variance_normalization_of_three_dimensions_lacks_an_axis():
    error = refusal(typed_model(node("MeanVarianceNormalization", ["x"], "y"), inputs={"x": [2, 3, 4]}), ShapeError)
    assert "axis" in error.why and "3" in error.why


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 6, 1, 4), (2, 6, 2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_normalization(opset, shape, groups):
    count = groups if opset < 21 else shape[1]
    scale, bias = noise(count).astype(F32), noise(count)[::-1].astype(F32)
    made = node("GroupNormalization", ["x", "s", "b"], "y", num_groups=groups, epsilon=1e-3)
    model = typed_model(made, inputs={"x": list(shape)}, constants={"s": scale, "b": bias}, opset=opset)
    x = noise(*shape).astype(F32)
    parts = x.astype(np.float64).reshape(shape[0], groups, -1)
    normal = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-3)
    spread = (-1,) + (1,) * (len(shape) - 2)
    gain, offset = (v.repeat(shape[1] // count).reshape(spread) for v in (scale, bias))
    wanted = normal.reshape(shape) * gain + offset
    assert np.abs(torq_byoc.compile(model).run({"x": x})["y"] - wanted).max() < 0.03 * np.abs(wanted).max()


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("bij,bjk", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 1, 3, 4), (2, 1, 5, 4)),
    ("...ij,...jk->...ik", (1, 3, 4), (2, 4, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,j->i", (3, 4), (4,)),
    ("ii->i", (4, 4)),
    ("iij->j", (3, 3, 2)),
    ("...ii->...", (2, 3, 3)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("i...->...", (3, 2, 4)),
    ("a,ab,abc->c", (2,), (2, 3), (2, 3, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=[case[0] for case in EQUATIONS])
def test_einsum(case):
    equation, *shapes = case
    names = [f"x{i}" for i in range(len(shapes))]
    model = typed_model(
        node("Einsum", names, "y", equation=equation),
        inputs=dict(zip(names, map(list, shapes), strict=True)),
        dtypes=dict.fromkeys(names, DOUBLE),
    )
    feeds = {
        name: np.random.default_rng(i).standard_normal(shape)
        for i, (name, shape) in enumerate(zip(names, shapes, strict=True))
    }
    found = torq_byoc.compile(model).run(feeds)["y"]
    wanted = np.einsum(equation, *feeds.values())
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("flags", [{}, {"reverse": 1}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}])
def test_cumulative_sum(dtype, axis, flags):
    made = node("CumSum", ["x", "k"], "y", **flags)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = typed_model(made, inputs={"x": [3, 5]}, constants={"k": np.array(axis)}, dtypes={"x": kind})
    assert_like_onnxruntime(model, {"x": (noise(3, 5) * 100).astype(dtype)}, rtol=1e-15)
