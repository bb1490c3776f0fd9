"""Results whose size depends on the data are refused by name; with constants the size is known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import torq_byoc
from tests.cli.tools import torq
from tests.end_to_end.host_models import F32, I64, noise, refusal, typed_model
from tests.frontend.onnx_tools import node
from torq_byoc.errors import UnsupportedOpError

CHOOSERS = {
    "NonZero": (node("NonZero", ["x"], "y", "chooser"), {"x": [3, 4]}, {}),
    "Compress": (node("Compress", ["k", "x"], "y", "chooser", axis=0), {"x": [3]}, {"k": noise(3, 4).astype(F32)}),
    "Unique": (node("Unique", ["x"], "y", "chooser"), {"x": [5]}, {}),
    "NonMaxSuppression": (
        node("NonMaxSuppression", ["x", "s", "n"], "y", "chooser"),
        {"x": [1, 3, 4], "s": [1, 1, 3]},
        {"n": np.array([2])},
    ),
    "Range": (node("Range", ["x", "end", "step"], "y", "chooser"), {"x": []}, {"end": F32(9), "step": F32(2)}),
    "Expand": (node("Expand", ["k", "x"], "y", "chooser"), {"x": [2]}, {"k": F32(1)}),
    "ConstantOfShape": (node("ConstantOfShape", ["x"], "y", "chooser"), {"x": [2]}, {}),
}
TYPES_OF_X = {"Compress": TensorProto.BOOL, "Expand": I64, "ConstantOfShape": I64}


def chooser(op: str) -> onnx.ModelProto:
    made, inputs, constants = CHOOSERS[op]
    return typed_model(made, inputs=inputs, constants=constants, dtypes={"x": TYPES_OF_X.get(op, TensorProto.FLOAT)})


@pytest.mark.parametrize("op", CHOOSERS)
def test_a_size_that_depends_on_data_is_refused_by_name(op):
    error = refusal(chooser(op), UnsupportedOpError)
    assert "'chooser'" in error.where and error.details["nodes"] == ["chooser"]


def test_the_command_line_reports_it_and_lists_the_other_nodes(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    made = [node("Relu", ["x"], "r", "before"), node("NonZero", ["r"], "n", "chooser"), node("Det", ["r"], "y", "none")]
    onnx.save(typed_model(*made, inputs={"x": [3, 3]}, outputs=("n", "y")), path)
    result = torq(capsys, "compile", path, "-o", tmp_path / "m.torq")
    assert result.code == 2 and "Traceback" not in result.err and "Det" in result.err
    rows = {row["node"]: row for row in torq(capsys, "ops", path, "--json").json["nodes"]}
    assert rows["before"]["place"] == "npu"
    assert rows["chooser"]["place"] == rows["none"]["place"] == "refused"
    assert "depends on the data" in rows["chooser"]["detail"] and "no conversion" in rows["none"]["detail"]


def test_nodes_behind_a_refused_one_are_placed_where_its_shape_is_known(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    made = [
        node("Det", ["x"], "d", "det"),
        node("Relu", ["d"], "y", "after"),
        node("NonZero", ["x"], "n", "chooser"),
        node("Cast", ["n"], "z", "lost", to=TensorProto.FLOAT),
    ]
    onnx.save(typed_model(*made, inputs={"x": [4, 3, 3]}, outputs=("y", "z")), path)
    rows = {row["node"]: row for row in torq(capsys, "ops", path, "--json").json["nodes"]}
    assert {name: row["place"] for name, row in rows.items()} == {
        "det": "refused",
        "after": "npu",
        "chooser": "refused",
        "lost": "refused",
    }
    assert "'chooser'" in rows["lost"]["detail"]


@pytest.mark.parametrize(
    ("op", "constants", "attrs", "wanted"),
    [
        ("NonZero", [np.array([[0, 2], [3, 0]])], {}, [[0, 1], [1, 0]]),
        ("Unique", [np.array([3, 1, 3], F32)], {}, [1, 3]),
        ("Compress", [np.array([4, 5, 6]), np.array([True, False, True])], {"axis": 0}, [4, 6]),
        ("Range", [np.array(1), np.array(8), np.array(3)], {}, [1, 4, 7]),
        ("ConstantOfShape", [np.array([2, 1])], {}, [[0.0], [0.0]]),
    ],
)
def test_with_constants_the_size_is_known(op, constants, attrs, wanted):
    names = [f"c{i}" for i in range(len(constants))]
    model = typed_model(
        node(op, names, "y", **attrs),
        node("Relu", ["x"], "z"),
        inputs={"x": [2]},
        outputs=("y", "z"),
        constants=dict(zip(names, constants, strict=True)),
    )
    y = torq_byoc.compile(model).run({"x": np.ones(2, F32)})["y"]
    assert y.tolist() == wanted and y.dtype == (F32 if op in ("ConstantOfShape", "Unique") else np.int64)
