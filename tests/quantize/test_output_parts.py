"""Parts of outputs follow concatenations through reshapes, transposes and each other."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from torq_byoc.frontend import prepare
from torq_byoc.quantize.output_parts import output_parts


def _model(text: str) -> onnx.ModelProto:
    header = '<ir_version: 8, opset_import: ["" : 13]>\n'
    return prepare(onnx.parser.parse_model(header + text))


def _names(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(part.output, part.name) for part in output_parts(model)]


def test_an_output_of_one_piece_is_one_part() -> None:
    model = _model("g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }")
    (part,) = output_parts(model)
    assert (part.output, part.name, part.mask) == ("y", "y", None)


def test_operands_of_a_concatenation_keep_their_places_behind_a_transpose() -> None:
    model = _model(
        """g (float[1, 2, 3] x) => (float[1, 3, 3] y) {
            a = Relu(x)
            b0 = ReduceMax<axes=[1], keepdims=1>(x)
            b = Sigmoid(b0)
            c = Concat<axis=1>(a, b)
            y = Transpose<perm=[0, 2, 1]>(c)
        }"""
    )
    first, second = output_parts(model)
    assert [(p.output, p.name) for p in (first, second)] == [("y", "a"), ("y", "b")]
    values = np.arange(9).reshape(1, 3, 3)
    assert first.of(values).tolist() == [0, 1, 3, 4, 6, 7]
    assert second.of(values).tolist() == [2, 5, 8]


def test_nested_concatenations_and_several_outputs() -> None:
    model = _model(
        """g (float[1, 2] x) => (float[1, 6] y, float[1, 2] b) {
            a = Relu(x)
            b = Sigmoid(x)
            c = Tanh(x)
            ab = Concat<axis=1>(a, b)
            y = Concat<axis=-1>(ab, c)
        }"""
    )
    assert _names(model) == [("y", "a"), ("y", "b"), ("y", "c"), ("b", "b")]


def test_a_part_that_a_slice_drops_is_no_part() -> None:
    model = _model(
        """g (float[1, 2] x) => (float[1, 3] y) <int64[1] begin = {0}, int64[1] end = {3}, int64[1] axes = {1}> {
            a = Relu(x)
            b = Sigmoid(x)
            c = Tanh(x)
            all = Concat<axis=1>(a, b, c)
            y = Slice(all, begin, end, axes)
        }"""
    )
    parts = output_parts(model)
    assert [part.name for part in parts] == ["a", "b"]
    assert parts[1].of(np.arange(3).reshape(1, 3)).tolist() == [2]
