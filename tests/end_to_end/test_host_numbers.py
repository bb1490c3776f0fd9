"""Infinities, zeros and other numbers that text and machine instructions have trouble with."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import torq_byoc
from tests.end_to_end.host_models import BF16, DOUBLE, F32, I64, assert_like_onnxruntime, noise, refusal, typed_model
from tests.frontend.onnx_tools import node
from torq_byoc.errors import ModelFileError


@pytest.mark.parametrize("shape", [[], [3], [2, 3]])
@pytest.mark.parametrize("zero", [0.0, -0.0, [0.0], [0.0, 2.0, -0.0]])
def test_floats_divided_by_a_constant_zero(shape, zero):
    model = typed_model(node("Div", ["x", "k"], "y"), inputs={"x": shape}, constants={"k": np.array(zero, F32)})
    x = np.resize(np.array([1.5, -2.0, 0.0], F32), shape)
    found = torq_byoc.compile(model).run({"x": x})["y"]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, x / np.array(zero, F32))


@pytest.mark.filterwarnings("error")
def test_floats_divided_by_a_constant_without_reciprocal():
    """0 times the infinite reciprocal of the smallest number would be NaN."""
    model = typed_model(node("Div", ["x", "k"], "y"), inputs={"x": [3]}, constants={"k": np.array(1e-45, F32)})
    found = torq_byoc.compile(model).run({"x": np.array([0.0, 2.0, -3.0], F32)})["y"]
    np.testing.assert_array_equal(found, np.array([0.0, np.inf, -np.inf], F32))


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("divisor", [np.array(0), np.array([3, 0])])
def test_integers_divided_by_a_constant_zero_are_refused(op, divisor):
    model = typed_model(
        node(op, ["x", "k"], "y", "quotient"), inputs={"x": [2]}, constants={"k": divisor}, dtypes={"x": I64}
    )
    assert "'quotient'" in refusal(model, ModelFileError).where


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("op", ["Div", "Mod", "fmod"])
def test_integers_divided_by_anything_at_run_time(op, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = node("Mod", ["x", "k"], "y", fmod=1) if op == "fmod" else node(op, ["x", "k"], "y")
    model = typed_model(made, inputs={"x": [6], "k": [6]}, dtypes={"x": kind, "k": kind})
    x = np.array([7, 7, 200, 5, np.iinfo(dtype).min, 9]).astype(dtype)
    k = np.array([2, 3, 7, 0, -1 if np.iinfo(dtype).min else 3, 4]).astype(dtype)
    found = torq_byoc.compile(model).run({"x": x, "k": k})["y"]
    safe = np.where((k == 0) | (x == np.iinfo(dtype).min), 1, k)
    wanted = x // safe if op == "Div" else x % safe
    assert found[[0, 1, 2, 5]].tolist() == wanted[[0, 1, 2, 5]].tolist()
    assert found[3] == 0 and found[4] == (np.iinfo(dtype).min if op == "Div" else 0)


def test_integer_division_rounds_towards_zero_and_remainders_follow_their_sign():
    x, k = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    made = [node("Div", ["x", "k"], "d"), node("Mod", ["x", "k"], "m"), node("Mod", ["x", "k"], "f", fmod=1)]
    model = typed_model(*made, inputs={"x": [4], "k": [4]}, outputs=("d", "m", "f"), dtypes={"x": I64, "k": I64})
    found = torq_byoc.compile(model).run({"x": x, "k": k})
    assert found["d"].tolist() == [3, -3, -3, 3]
    assert found["m"].tolist() == [1, 1, -1, -1]
    assert found["f"].tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("fill", [-np.inf, np.inf, np.nan])
def test_infinite_constants_on_the_cpu(fill):
    made = [
        node("Where", ["mask", "x", "fill"], "w"),
        node("Pad", ["x", "pads", "fill"], "p"),
        node("Cast", ["x"], "d", to=DOUBLE),
        node("Clip", ["d", "low"], "c"),
    ]
    constants = {
        "fill": F32(fill),
        "pads": np.array([0, 1, 0, 0]),
        "low": np.float64(-0.5),
        "mask": np.array([True, False]),
    }
    model = typed_model(*made, inputs={"x": [2, 2]}, outputs=("w", "p", "c"), constants=constants)
    assert_like_onnxruntime(model, {"x": np.array([[1.0, -2.0], [0.25, 3.0]], F32)})


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.bool_])
def test_extremes_of_infinities_and_truth_values(op, dtype):
    sign = -1 if op == "ReduceMax" else 1
    x = np.array([[sign * np.inf] * 3, [1, 0, 2], [0, 0, 0]]).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = [node("Identity", ["x"], "i"), node(op, ["i", "k"], "y", keepdims=0)]
    model = typed_model(*made, inputs={"x": [3, 3]}, constants={"k": np.array([1])}, dtypes={"x": kind}, opset=20)
    wanted = x.max(1) if op == "ReduceMax" else x.min(1)
    if dtype == np.float64:
        wanted = wanted[1:]
    assert torq_byoc.compile(model).run({"x": x})["y"][-len(wanted) :].tolist() == wanted.tolist()


def test_constants_of_wide_and_narrow_floats_keep_their_type():
    made = [
        node("Add", ["x", "k"], "y"),
        node("Cast", ["x"], "h", to=TensorProto.BFLOAT16),
        node("Mul", ["h", "b"], "z"),
    ]
    wide = noise(4, 3)
    narrow = np.array([1.5, -3.0, 0.25]).astype(BF16)
    model = typed_model(
        *made, inputs={"x": [4, 3]}, outputs=("y", "z"), constants={"k": wide, "b": narrow}, dtypes={"x": DOUBLE}
    )
    x = np.round(noise(4, 3))
    found = torq_byoc.compile(model).run({"x": x})
    np.testing.assert_array_equal(found["y"], x + wide)
    np.testing.assert_array_equal(found["z"].astype(F32), x.astype(F32) * narrow.astype(F32))


@pytest.mark.parametrize("slope", [np.inf, -np.inf, np.nan, [1.0, np.inf, np.nan, -np.inf], [np.nan, 0.5, 0.5, 0.5]])
def test_slopes_that_are_no_finite_numbers_are_for_negative_values_alone(slope):
    slope = np.array(slope, F32)
    model = typed_model(node("PRelu", ["x", "k"], "y"), inputs={"x": [2, 4]}, constants={"k": slope})
    x = np.array([[-1.5, 0.0, -0.0, 2.0], [3.0, -2.0, -0.25, -1.0]], F32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(torq_byoc.compile(model).run({"x": x})["y"], np.where(x < 0, slope * x, x))
