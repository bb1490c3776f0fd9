"""What stays on the CPU is right, or refused by name when compiling: never an internal error, never at run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torq_byoc
from tests.cli.tools import torq
from tests.end_to_end.node_cases import GENERATORS, cases_of, fault
from tests.frontend.onnx_tools import graph_model, node, run_reference
from torq_byoc.errors import ModelFileError, ShapeError, TorqError, UnsupportedOpError
from torq_byoc.npu_model.dtypes import DType

F32 = np.float32
DOUBLE = TensorProto.DOUBLE
I64 = TensorProto.INT64
BF16 = DType.BF16.numpy


def noise(*shape: int) -> np.ndarray:
    """Numbers with one channel far larger than the others."""
    data = np.random.default_rng(7).standard_normal(shape)
    if len(shape) > 1:
        data[:, 0] *= 7.5
    return data


def typed_model(*nodes: onnx.NodeProto, inputs: dict, outputs: tuple[str, ...] = ("y",), **options: object):
    """A model whose outputs take the types that inference finds; float where it finds none."""
    model = graph_model(nodes, inputs, outputs, **options)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.ClearField("type")
    found = {value.name: value.type for value in onnx.shape_inference.infer_shapes(bare).graph.output}
    for value in model.graph.output:
        if found[value.name].WhichOneof("value"):
            value.type.CopyFrom(found[value.name])
    return model


def assert_like_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray], rtol: float = 0.0) -> None:
    """Compile, run, and compare with onnxruntime; ``rtol`` is a share of the largest magnitude."""
    found = list(torq_byoc.compile(model).run(feeds).values())
    for a, b in zip(found, run_reference(model, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=0)) if b.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=0, atol=rtol * largest)


def refusal(model: onnx.ModelProto, kind: type[TorqError]) -> TorqError:
    """The error of compiling a model, complete in its four parts."""
    with pytest.raises(kind) as caught:
        torq_byoc.compile(model)
    error = caught.value
    assert type(error) is kind and error.what and error.where and error.why and error.remedy
    return error


# ---- results whose size depends on the data

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


# ---- operators that TVM's importer fails at, or gives another meaning


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


# ---- infinities, zeros and other numbers that text and machine instructions have trouble with


@pytest.mark.parametrize("shape", [[], [3], [2, 3]])
@pytest.mark.parametrize("zero", [0.0, -0.0, [0.0], [0.0, 2.0, -0.0]])
def test_floats_divided_by_a_constant_zero(shape, zero):
    model = typed_model(node("Div", ["x", "k"], "y"), inputs={"x": shape}, constants={"k": np.array(zero, F32)})
    x = np.resize(np.array([1.5, -2.0, 0.0], F32), shape)
    found = torq_byoc.compile(model).run({"x": x})["y"]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, x / np.array(zero, F32))


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


# ---- tensors that no machine computes with, and tensors without elements


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


# ---- indices and samples


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


# ---- the onnx package's own cases


@pytest.mark.parametrize("generator", GENERATORS)
def test_one_case_of_each_operator_is_right_or_refused_by_name(generator):
    case = next(case for case in cases_of(generator) if not case.name.endswith("_expanded"))
    assert fault(case.frozen()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("generator", GENERATORS)
def test_every_case_is_right_or_refused_by_name(generator):
    faults = {}
    for case in cases_of(generator):
        faults[case.name] = fault(case)
        if len(case.feeds) > 1:
            faults[f"{case.name}, frozen"] = fault(case.frozen())
    assert {name: text for name, text in faults.items() if text} == {}
