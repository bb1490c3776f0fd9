"""validate() on models that onnx or onnxruntime would let through, one fault each."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx_tools import graph_model, node
from torq_byoc.errors import ModelFileError, QuantizationError, ShapeError, TorqError, UnsupportedOpError
from torq_byoc.frontend import prepare, validate
from torq_byoc.frontend.validator.operand_types import check_operand_types
from torq_byoc.frontend.validator.tensors import check_tensor

F32 = np.float32


def relu_model() -> onnx.ModelProto:
    return graph_model(
        [node("Relu", ["x"], "a"), node("Add", ["a", "w"], "y")], {"x": [1, 4]}, ["y"], {"w": np.ones(4, F32)}
    )


def quantized(scale=0.5, zero=0, dtype=np.int8, shape=(2, 3), **attrs) -> onnx.ModelProto:
    """x -> quantize -> dequantize -> y."""
    constants = {"s": np.asarray(scale, F32), "z": np.asarray(zero, dtype)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q", "quantize", **attrs),
        node("DequantizeLinear", ["q", "s", "z"], "y", "dequantize", **attrs),
    ]
    return graph_model(nodes, {"x": list(shape)}, ["y"], constants)


def edit(change) -> onnx.ModelProto:
    model = relu_model()
    change(model)
    return model


def set_dims(*dims):
    def change(model):
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)

    return change


def set_data(**fields):
    return lambda model: [setattr(model.graph.initializer[0], k, v) for k, v in fields.items()]


def declare(*dims, elem_type=TensorProto.FLOAT):
    value = helper.make_tensor_value_info("a", elem_type, list(dims))
    return lambda model: model.graph.value_info.append(value)


def rename_input(index, position, name):
    def change(model):
        model.graph.node[index].input[position] = name

    return change


BAD_STRUCTURE = {
    "no outputs": (lambda m: m.graph.ClearField("output"), "no outputs"),
    "dangling input": (rename_input(1, 0, "nowhere"), "nothing defines"),
    "cycle": (rename_input(0, 0, "y"), "cycle"),
    "self loop": (rename_input(0, 0, "a"), "cycle"),
    "not in order": (lambda m: m.graph.node.insert(0, m.graph.node.pop(1)), "not in order"),
    "output defined twice": (lambda m: m.graph.node[1].output.__setitem__(0, "a"), "more than once"),
    "output shadows a weight": (lambda m: m.graph.node[0].output.__setitem__(0, "w"), "more than once"),
    "two weights of a name": (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "used twice"),
    "weight without a name": (lambda m: m.graph.initializer.add(data_type=1, dims=[0]), "name is empty"),
    "graph output without producer": (lambda m: setattr(m.graph.output[0], "name", "zzz"), "computed by no node"),
    "node without output": (lambda m: m.graph.node.add(op_type="Relu", input=["x"]), "no output"),
    "opset 999": (lambda m: setattr(m.opset_import[0], "version", 999), "operator-set"),
    "opset 1": (lambda m: setattr(m.opset_import[0], "version", 1), "operator-set"),
    "opset -1": (lambda m: setattr(m.opset_import[0], "version", -1), "operator-set"),
    "element type 99": (set_data(data_type=99), "element type"),
    "element type 0": (set_data(data_type=0), "element type"),
    "complex weights": (set_data(data_type=TensorProto.COMPLEX64), "element type"),
    "short data": (set_data(raw_data=b"\0" * 15), "does not fit"),
    "long data": (set_data(raw_data=b"\0" * 17), "does not fit"),
    "data twice": (lambda m: m.graph.initializer[0].float_data.extend([1.0] * 4), "twice"),
    "no data": (lambda m: m.graph.initializer[0].ClearField("raw_data"), "does not fit"),
    "declared element type 77": (declare(1, 4, elem_type=77), "element type"),
    "external data unresolved": (set_data(data_location=TensorProto.EXTERNAL), "External"),
}


@pytest.mark.parametrize("name", BAD_STRUCTURE)
def test_damaged_structure(name):
    change, message = BAD_STRUCTURE[name]
    with pytest.raises(ModelFileError, match=message) as caught:
        validate(edit(change))
    assert caught.value.remedy and caught.value.where


@pytest.mark.parametrize(
    "change",
    [
        set_dims(-4),
        set_dims(2**62),
        set_dims(2**31 - 1, 2**31 - 1),
        declare(-3, 4),
        declare(2**40),
        declare(2**30, 2**30, 2**30),
    ],
)
def test_impossible_dimensions(change):
    with pytest.raises(ShapeError):
        validate(edit(change))


def test_minus_one_is_an_unknown_dimension():
    validate(edit(declare(-1, 4)))


@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan"), float("inf"), float("-inf"), -0.0])
def test_scale_must_be_positive_and_finite(scale):
    with pytest.raises(QuantizationError, match="positive, finite") as caught:
        validate(quantized(scale))
    assert "quantize" in caught.value.where


def test_strings_are_as_many_as_their_shape_says():
    damaged = TensorProto(name="w", data_type=TensorProto.STRING, dims=[4])
    with pytest.raises(ModelFileError, match="takes 4 entries of string_data, the file holds 0"):
        check_tensor(damaged)


def _typed(operator, kinds, **attrs):
    inputs = {f"x{index}": kind for index, kind in enumerate(kinds)}
    graph = helper.make_graph(
        [helper.make_node(operator, list(inputs), ["y"], "node", **attrs)],
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name="y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        ("Conv", [(FLOAT, [1, 2, 4, 4]), (FLOAT, [3, 2, 1, 1]), (INT32, [3])]),
        ("Add", [(FLOAT, [2]), (INT32, [2])]),
        ("Concat", [(FLOAT, [2]), (FLOAT, [2]), (INT32, [2])]),
        ("Where", [(TensorProto.BOOL, [2]), (FLOAT, [2]), (INT32, [2])]),
    ],
)
def test_operands_of_one_type_have_it(operator, operands):
    attrs = {"axis": 0} if operator == "Concat" else {}
    with pytest.raises(ModelFileError, match="different element types") as caught:
        check_operand_types(_typed(operator, operands, **attrs))
    assert "'node'" in caught.value.where
    same = [(FLOAT if kind == INT32 else kind, shape) for kind, shape in operands]
    check_operand_types(_typed(operator, same, **attrs))


def test_operands_of_types_of_their_own_may_differ():
    check_operand_types(_typed("Gather", [(FLOAT, [4]), (INT32, [2])]))
    check_operand_types(_typed("Pow", [(FLOAT, [4]), (INT32, [4])]))


@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.INT64, TensorProto.UINT8])
def test_only_numbers_that_the_standard_names_are_quantized(kind):
    model = quantized(0.5)
    model.graph.input[0].type.tensor_type.elem_type = kind
    with pytest.raises(QuantizationError, match="cannot be quantized") as caught:
        validate(model)
    assert "quantize" in caught.value.where


def test_one_bad_scale_of_many_is_found():
    with pytest.raises(QuantizationError, match=r"\[2\] is 0.0"):
        validate(quantized([0.5, 0.5, 0.0], [0, 0, 0], axis=1))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (quantized([0.5] * 4, [0] * 4, axis=1), "as long as"),
        (quantized([0.5] * 3, [0] * 3, axis=0), "as long as"),
        (quantized([0.5] * 3, [0] * 3, axis=2), "axis does not exist"),
        (quantized([0.5] * 3, [0] * 3, axis=-3), "axis does not exist"),
        (quantized(0.5, 0, axis=9), "axis does not exist"),
        (quantized([0.5] * 3, [0] * 2, axis=1), "different lengths"),
        (quantized([[0.5] * 3], [[0] * 3], axis=1), "along one axis"),
    ],
)
def test_quantization_parameters_that_do_not_fit(model, message):
    with pytest.raises((QuantizationError, ModelFileError), match=message):
        validate(model)


def test_zero_point_of_another_type():
    constants = {"s": np.array(0.5, F32), "z": np.array(0, np.uint8), "q": np.zeros((2, 3), np.int8)}
    model = graph_model(
        [node("DequantizeLinear", ["q", "s", "z"], "d"), node("Add", ["d", "x"], "y")], {"x": [2, 3]}, ["y"], constants
    )
    with pytest.raises(QuantizationError, match="INT8|UINT8"):
        validate(model)


def test_int32_zero_point_must_be_zero():
    constants = {"s": np.array(0.5, F32), "z": np.array(3, np.int32), "q": np.zeros(3, np.int32)}
    model = graph_model(
        [node("DequantizeLinear", ["q", "s", "z"], "d"), node("Add", ["d", "x"], "y")], {"x": [3]}, ["y"], constants
    )
    with pytest.raises(QuantizationError, match="not zero"):
        validate(model)


def test_parameters_from_constant_nodes_are_checked():
    model = quantized()
    constant = helper.make_node("Constant", [], ["s"], value_float=0.0)
    model.graph.initializer.pop(0)
    model.graph.node.insert(0, constant)
    with pytest.raises(QuantizationError):
        validate(model)


def i64(*values):
    return np.array(values, np.int64)


BOMBS = {
    "ConstantOfShape": ([node("ConstantOfShape", ["k"], "t")], {"k": i64(2**20, 2**20)}),
    "Expand": ([node("Expand", ["x", "k"], "t")], {"k": i64(2**18, 2**18, 1, 4)}),
    "Tile": ([node("Tile", ["x", "k"], "t")], {"k": i64(2**20, 2**20)}),
    "Range": (
        [node("Range", ["a", "b", "c"], "t")],
        {"a": np.array(0.0, F32), "b": np.array(1e30, F32), "c": np.array(1.0, F32)},
    ),
    "Range by nothing": ([node("Range", ["a", "b", "c"], "t")], {"a": i64(0)[0], "b": i64(9)[0], "c": i64(0)[0]}),
    "Range to infinity": (
        [node("Range", ["a", "b", "c"], "t")],
        {"a": np.array(0.0, F32), "b": np.array(np.inf, F32), "c": np.array(1.0, F32)},
    ),
    "Pad": ([node("Pad", ["x", "k"], "t")], {"k": i64(0, 0, 0, 2**40)}),
    "Resize by scale": (
        [node("Resize", ["x4", "", "k"], "t")],
        {"k": np.array([1, 1, 1e9, 1e9], F32), "x4": np.ones((1, 1, 2, 2), F32)},
    ),
    "Resize to size": (
        [node("Resize", ["x4", "", "", "k"], "t")],
        {"k": i64(1, 1, 2**30, 2**30), "x4": np.ones((1, 1, 2, 2), F32)},
    ),
    "broadcast": (
        [node("Add", ["p", "q"], "t")],
        {"p": np.ones((1 << 17, 1), F32), "q": np.ones((1, 1 << 17), F32)},
    ),
    "shape from arithmetic": (
        [node("Mul", ["k", "k"], "kk"), node("ConstantOfShape", ["kk"], "t")],
        {"k": i64(2**10, 2**10)},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_folding_bombs(name):
    nodes, constants = BOMBS[name]
    model = graph_model(
        [*nodes, node("ReduceMax", ["t"], "m"), node("Cast", ["m"], "f", to=1), node("Add", ["x", "f"], "y")],
        {"x": [1, 4]},
        ["y"],
        constants,
    )
    with pytest.raises(ShapeError):
        prepare(model)


@pytest.mark.parametrize(
    "bad",
    [
        node("Softmax", ["x"], "y", axis=2),
        node("Softmax", ["x"], "y", axis=-3),
        node("Concat", ["x", "x"], "y", axis=5),
        node("Flatten", ["x"], "y", axis=3),
        node("ReduceMean", ["x"], "y", axes=[2]),
        node("Unsqueeze", ["x", "k"], "y"),
        node("Gather", ["x", "k"], "y", axis=-4),
    ],
)
def test_axis_out_of_range(bad):
    with pytest.raises((ShapeError, ModelFileError)):
        validate(graph_model([bad], {"x": [1, 4]}, ["y"], {"k": i64(7)}))


def test_all_unknown_operators_at_once():
    nodes = [
        node("Frobnicate", ["x"], "a", "first"),
        node("Relu", ["a"], "b"),
        helper.make_node("Magic", ["b"], ["c"], name="second", domain="ai.acme"),
        node("Frobnicate", ["c"], "y", "third"),
    ]
    with pytest.raises(UnsupportedOpError) as caught:
        validate(graph_model(nodes, {"x": [1, 4]}, ["y"], domains=["ai.acme"]))
    assert caught.value.details["nodes"] == {"Frobnicate": ["first", "third"], "ai.acme.Magic": ["second"]}
    for name in ("first", "second", "third", "ai.acme.Magic"):
        assert name in str(caught.value)


def test_contradicting_shapes_are_refused():
    model = graph_model([node("MatMul", ["x", "w"], "y")], {"x": [1, 4]}, ["y"], {"w": np.ones((5, 3), F32)})
    with pytest.raises(ShapeError, match="contradict"):
        prepare(model)


def test_contradiction_that_only_folding_reveals():
    nodes = [node("Shape", ["x"], "s"), node("ConstantOfShape", ["s"], "zeros"), node("Add", ["zeros", "w"], "y")]
    with pytest.raises((ShapeError, ModelFileError)):
        prepare(graph_model(nodes, {"x": [2, 4]}, ["y"], {"w": np.ones(5, F32)}))


@pytest.mark.parametrize(
    ("op", "weight", "group"),
    [
        ("Conv", (4, 3, 1, 1), 1),
        ("Conv", (4, 3, 1, 1), 2),
        ("Conv", (3, 2, 1, 1), 3),
        ("ConvTranspose", (4, 6, 1, 1), 1),
    ],
)
def test_weights_that_do_not_fit_the_channels(op, weight, group):
    fits = (op, weight, group) in {("Conv", (4, 3, 1, 1), 2), ("Conv", (3, 2, 1, 1), 3)}
    model = graph_model(
        [node(op, ["x", "w"], "y", group=group)], {"x": [1, 6, 2, 2]}, ["y"], {"w": np.ones(weight, F32)}
    )
    if fits:
        validate(model)
    else:
        with pytest.raises(ShapeError, match="do not fit"):
            validate(model)


def test_kernel_shape_that_is_not_the_weights():
    model = graph_model(
        [node("Conv", ["x", "w"], "y", kernel_shape=[1, 1])],
        {"x": [1, 3, 8, 8]},
        ["y"],
        {"w": np.ones((4, 3, 3, 3), F32)},
    )
    with pytest.raises(ShapeError, match="kernel_shape"):
        validate(model)


def test_names_that_are_not_text():
    data = relu_model().SerializeToString().replace(b"Relu", b"Re\xfflu"[:4])
    model = onnx.ModelProto.FromString(data)
    with pytest.raises(ModelFileError, match="not text"):
        validate(model)


def test_wrong_attribute_type_is_refused():
    model = relu_model()
    model.graph.node[0].attribute.append(helper.make_attribute("no_such_attribute", 3))
    with pytest.raises(ModelFileError, match="specification"):
        validate(model)


def test_validation_leaves_the_model_alone():
    model = quantized([0.5, 0.25, 1.0], [0, 1, -1], axis=1)
    before = model.SerializeToString(deterministic=True)
    validate(model)
    assert model.SerializeToString(deterministic=True) == before


def test_every_message_has_its_four_parts():
    for model in (quantized(0.0), edit(set_dims(-4)), edit(rename_input(1, 0, "nowhere"))):
        with pytest.raises(TorqError) as caught:
            validate(model)
        parts = caught.value.to_json()
        assert all(parts[key] for key in ("what", "where", "why", "try"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("operator", "name"), [("LeakyRelu", "alpha"), ("Elu", "alpha"), ("Selu", "gamma")])
def test_a_parameter_that_is_no_finite_number_is_refused(operator, name, value):
    model = graph_model([node(operator, ["x"], "y", **{name: value})], {"x": (2, 3)}, ["y"])
    with pytest.raises(ModelFileError, match=rf"(?s){operator}.*{name} is {value}"):
        validate(model)


def test_bounds_and_stored_numbers_may_be_infinite():
    low = node("Clip", ["x"], "c", min=float("-inf"), max=1.0)
    stored = helper.make_node("Constant", [], ["k"], "k", value_float=float("-inf"))
    validate(graph_model([low, node("Relu", ["c"], "y")], {"x": (2, 3)}, ["y"], opset=10))
    validate(graph_model([stored, node("Max", ["x", "k"], "y")], {"x": (2, 3)}, ["y"]))
