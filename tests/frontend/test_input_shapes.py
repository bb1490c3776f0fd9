"""Fixing input shapes: names, symbols, defaults and refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.onnx_tools import assert_same_results, graph_model, node
from torq_byoc.errors import ShapeError
from torq_byoc.frontend import prepare, prepare_with_notes


def two_inputs(first, second) -> onnx.ModelProto:
    return graph_model([node("Add", ["a", "b"], "y")], {"a": first, "b": second}, ["y"])


def dims(model: onnx.ModelProto) -> dict[str, list[int]]:
    values = [*model.graph.input, *model.graph.output]
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def test_batch_alone_becomes_one_and_is_noted():
    result = prepare_with_notes(two_inputs(["N", 3], ["M", 3]))
    assert dims(result.model) == {"a": [1, 3], "b": [1, 3], "y": [1, 3]}
    assert len(result.notes) == 2 and "'a'" in result.notes[0] and "1" in result.notes[0]


def test_a_given_name_reaches_every_input():
    result = prepare_with_notes(two_inputs(["N", "L"], ["N", "L"]), {"a": (2, 5)})
    assert dims(result.model) == {"a": [2, 5], "b": [2, 5], "y": [2, 5]}
    assert result.notes == ()


def test_question_marks_are_not_a_shared_name():
    model = prepare(two_inputs(["?", "?"], ["?", "?"]), {"a": (2, 5), "b": (2, 1)})
    assert dims(model)["y"] == [2, 5]


@pytest.mark.parametrize("unknown", [0, -1, "L"])
def test_unknown_dimensions_name_each_input_and_the_flag(unknown):
    with pytest.raises(ShapeError) as caught:
        prepare(two_inputs(["N", unknown], ["N", 3]))
    assert "--shape a:" in caught.value.remedy and "--shape b" not in caught.value.remedy
    assert "'a'" in caught.value.where
    assert set(caught.value.details["inputs"]) == {"a"}


def test_all_unknown_inputs_are_listed():
    with pytest.raises(ShapeError) as caught:
        prepare(two_inputs(["N", "L"], ["N", "K"]))
    assert "--shape a:NxN" in caught.value.remedy and "--shape b:NxN" in caught.value.remedy


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"zzz": (1, 3)}, "the inputs are 'a', 'b'"),
        ({"a": (1, 3, 1)}, "does not fit"),
        ({"a": (1, 4)}, "does not fit"),
        ({"a": (0, 3)}, "impossible"),
        ({"a": (-1, 3)}, "impossible"),
        ({"a": (2**40, 3)}, "impossible"),
        ({"a": (2, 3), "b": (3, 3)}, "two sizes"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ShapeError, match=message):
        prepare(two_inputs(["N", 3], ["N", 3]), shapes)


def test_input_without_any_shape():
    model = two_inputs([1, 3], [1, 3])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ShapeError, match="--shape a:DIMS"):
        prepare(model)
    assert dims(prepare(model, {"a": (2, 3)}))["y"] == [2, 3]


def test_bound_input_disappears():
    model = two_inputs([1, 3], [1, 3])
    value = np.array([[1.0, -2.0, 3.0]], np.float32)
    result = prepare_with_notes(model, bind={"b": value})
    assert [v.name for v in result.model.graph.input] == ["a"]
    assert "'b'" in result.notes[0]
    assert_same_results(model, result.model, feeds={"a": np.ones((1, 3), np.float32), "b": value})


def test_unknown_bound_name():
    with pytest.raises(ShapeError, match="does not have"):
        prepare(two_inputs([1], [1]), bind={"c": np.zeros(1)})


def test_given_model_is_not_changed():
    model = two_inputs(["N", 3], ["N", 3])
    before = model.SerializeToString(deterministic=True)
    prepare(model, {"a": (4, 3)})
    assert model.SerializeToString(deterministic=True) == before


def test_stale_shapes_do_not_survive():
    model = two_inputs(["N", 3], ["N", 3])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["N", 3]))
    assert dims(prepare(model, {"a": (7, 3)}))["y"] == [7, 3]


def test_an_input_that_is_returned_keeps_its_shape():
    model = graph_model([node("Relu", ["a"], "y")], {"a": ["N", 4]}, ["y", "a"])
    prepared = prepare(model, {"a": (3, 4)})
    assert [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in prepared.graph.output] == [[3, 4], [3, 4]]
