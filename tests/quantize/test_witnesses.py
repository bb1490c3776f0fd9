"""Small and one-sided outputs are judged by what they are made of."""

from __future__ import annotations

import onnx
import onnx.parser

from torq_byoc.frontend import prepare
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.witnesses import judged_parts, with_outputs

TEXT = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1, 8, 16, 16] x) => (float[1, 8, 1, 1] y, float[1, 8, 16, 16] map) {
        a = Relu(x)
        map = Sigmoid(a)
        pooled = GlobalAveragePool(a)
        y = Sigmoid(pooled)
    }"""


def model() -> onnx.ModelProto:
    return prepare(onnx.parser.parse_model(TEXT))


def names(sizes: dict[str, float]) -> list[tuple[str, str]]:
    return [(part.output, part.name) for part in judged_parts(model(), sizes)]


def test_large_outputs_stand_for_themselves_and_small_ones_for_what_is_before() -> None:
    sizes = {"x": 2000.0, "a": 900.0, "map": 2000.0, "pooled": 8.0, "y": 8.0}
    assert names(sizes) == [("a", "a"), ("map", "map")]


def test_an_output_with_nothing_large_before_it_stands_for_itself() -> None:
    assert names({"a": 3.0, "map": 2000.0, "y": 8.0}) == [("y", "y"), ("map", "map")]


def test_further_outputs_can_be_judged() -> None:
    parts = judged_parts(model(), {"a": 900.0})
    shown = with_outputs(model(), [part.output for part in parts])
    judge = Judge(shown, [], parts)
    assert [value.name for value in shown.graph.output] == ["y", "map", "a"]
    assert [part.output for part in judge.parts] == ["a"]
