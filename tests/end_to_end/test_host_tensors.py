"""Tensors that no machine computes with, tensors without elements, indices and samples."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torq_byoc
from tests.end_to_end.host_models import DOUBLE, F32, I64, assert_like_onnxruntime, noise, refusal, typed_model
from tests.frontend.onnx_tools import node
from torq_byoc.errors import ShapeError, UnsupportedOpError


def strings(place: str) -> onnx.ModelProto:
    text = helper.make_tensor("s", TensorProto.STRING, [2], [b"a", b"b"])
    made = {
        "input": [node("Equal", ["x", "x"], "y", "n")],
        "initializer": [node("Equal", ["s", "s"], "y", "n")],
        "attribute": [helper.make_node("Constant", [], ["s"], value=text), node("Gather", ["s", "x"], "y", "n")],
        "values": [
            helper.make_node("Constant", [], ["s"], value_strings=["a", "b"]),
            node("Gather", ["s", "x"], "y", "n"),
        ],
        "cast": [node("Cast", ["x"], "t", "n", to=TensorProto.STRING), node("Shape", ["t"], "y")],
    }[place]
    kind = {"input": TensorProto.STRING, "cast": TensorProto.FLOAT}.get(place, I64)
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", kind, [2])],
        [onnx.ValueInfoProto(name="y")],
        [text] if place == "initializer" else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("place", ["input", "initializer", "attribute", "values"])
def test_strings_are_refused(place):
    error = refusal(strings(place), UnsupportedOpError)
    assert "STRING" in error.what and "'n'" in error.where


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.COMPLEX64])
def test_types_without_arithmetic_are_refused(kind):
    model = typed_model(
        node("Cast", ["x"], "t", "n", to=kind), node("Cast", ["t"], "y", to=1), inputs={"x": [2]}, opset=21
    )
    if kind == TensorProto.COMPLEX64:
        model = typed_model(node("Identity", ["x"], "y", "n"), inputs={"x": [2]}, dtypes={"x": kind})
    error = refusal(model, UnsupportedOpError)
    assert TensorProto.DataType.Name(kind) in error.what


def test_sequences_at_the_interface_are_refused():
    model = typed_model(node("SplitToSequence", ["x"], "y", axis=0), inputs={"x": [2, 3]})
    assert "'y'" in refusal(model, UnsupportedOpError).where


@pytest.mark.parametrize(
    "made",
    [
        [node("SequenceConstruct", ["x", "x"], "s"), node("ConcatFromSequence", ["s"], "y", axis=0)],
        [node("SplitToSequence", ["x"], "s", axis=0), node("SequenceAt", ["s", "i"], "y")],
        [node("Optional", ["x"], "s"), node("OptionalGetElement", ["s"], "y")],
    ],
    ids=lambda made: made[0].op_type,
)
def test_sequences_inside_a_model_are_refused(made):
    model = typed_model(*made, inputs={"x": [2, 3]}, constants={"i": np.array(1)})
    error = refusal(model, UnsupportedOpError)
    assert error.details["ops"] == sorted(n.op_type for n in made)


@pytest.mark.parametrize("shape", [[0, 3], [3, 0], [0], [2, 0, 4]])
def test_an_input_without_elements_is_refused(shape):
    error = refusal(typed_model(node("Relu", ["x"], "y"), inputs={"x": shape}), ShapeError)
    assert "'x'" in error.where and "--shape x:" in error.remedy and "at least one element" in error.why


def test_empty_tensors_inside_a_model():
    made = [
        node("Slice", ["x", "zero", "zero", "one"], "e"),
        node("Relu", ["e"], "a"),
        node("Concat", ["x", "a", "w"], "b", axis=1),
        node("ReduceSum", ["a", "one"], "s"),
        node("MatMul", ["a", "k"], "m"),
        node("Split", ["x", "parts"], ["p", "q", "r"], axis=1),
        node("Add", ["p", "p"], "t"),
    ]
    constants = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "w": np.zeros((2, 0), F32),
        "k": np.zeros((0, 4), F32),
        "parts": np.array([2, 0, 1]),
    }
    model = typed_model(*made, inputs={"x": [2, 3]}, outputs=("a", "b", "s", "m", "q", "r", "t"), constants=constants)
    x = noise(2, 3).astype(F32)
    found = torq_byoc.compile(model).run({"x": x})
    assert found["a"].shape == found["q"].shape == (2, 0)
    np.testing.assert_array_equal(found["b"], x)
    np.testing.assert_array_equal(found["s"], np.zeros((2, 1)))
    np.testing.assert_array_equal(found["m"], np.zeros((2, 4)))
    np.testing.assert_array_equal(found["r"], x[:, 2:])
    np.testing.assert_allclose(found["t"], 2 * x[:, :2], rtol=2**-8)


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_indices_from_run_time_stay_inside_the_tensor(op):
    updates = ["u"] if op.startswith("Scatter") else []
    shape = [2, 1] if op.endswith("ND") else [2]
    made = node(op, ["x", "i", *updates], "y")
    constants = {"u": np.array([10.0, 20.0])} if updates else {}
    model = typed_model(made, inputs={"x": [4], "i": shape}, constants=constants, dtypes={"x": DOUBLE, "i": I64})
    compiled = torq_byoc.compile(model)
    x = np.arange(4.0)
    good = compiled.run({"x": x, "i": np.array([-1, 1]).reshape(shape)})["y"]
    assert good.reshape(-1).tolist() == ([0.0, 20.0, 2.0, 10.0] if updates else [3.0, 1.0])
    far = compiled.run({"x": x, "i": np.array([2**40, -(2**40)]).reshape(shape)})["y"]
    assert far.reshape(-1).tolist() == ([20.0, 1.0, 2.0, 10.0] if updates else [3.0, 0.0])


def test_constant_indices_beyond_the_tensor_are_refused():
    model = typed_model(node("GatherND", ["x", "i"], "y", "n"), inputs={"x": [4]}, constants={"i": np.array([[4]])})
    assert "'n'" in refusal(model, ShapeError).where


RESIZES = [
    ([1, 2, 5, 7], {"sizes": [1, 2, 3, 4]}, {"mode": "linear", "antialias": 1}),
    ([1, 2, 5, 7], {"sizes": [1, 2, 3, 4]}, {"mode": "cubic", "antialias": 1, "exclude_outside": 1}),
    ([1, 2, 5, 7], {"scales": [1, 1, 0.6, 0.6]}, {"mode": "linear"}),
    ([1, 2, 5, 7], {"scales": [1, 1, 1.3, 0.7]}, {"mode": "cubic", "cubic_coeff_a": -0.5}),
    ([1, 2, 5, 7], {"scales": [1, 1, 0.6, 1.7]}, {"mode": "nearest", "nearest_mode": "ceil"}),
    ([1, 2, 5, 1], {"sizes": [1, 2, 1, 3]}, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ([2, 3, 4], {"sizes": [2, 3, 9]}, {"mode": "linear"}),
    ([2, 3, 4, 2, 3], {"sizes": [2, 3, 4, 5, 2]}, {"mode": "nearest"}),
    ([4, 6], {"scales": [2, 0.5]}, {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    ([1, 1, 6, 6], {"sizes": [7, 8], "axes": [2, 3]}, {"mode": "cubic", "keep_aspect_ratio_policy": "not_larger"}),
]


@pytest.mark.parametrize("shape, target, attrs", RESIZES)
def test_every_form_of_resize(shape, target, attrs):
    constants = {"t": np.array(target.get("sizes", target.get("scales")), np.int64 if "sizes" in target else F32)}
    inputs = ["x", "", "", "t"] if "sizes" in target else ["x", "", "t"]
    axes = {"axes": target["axes"]} if "axes" in target else {}
    model = typed_model(
        node("Resize", inputs, "y", **attrs, **axes), inputs={"x": shape}, constants=constants, opset=19
    )
    assert_like_onnxruntime(model, {"x": noise(*shape).astype(F32)}, rtol=0.015)
