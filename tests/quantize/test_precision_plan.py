"""Precision plans as files, and models quantized as they say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.quantize.models import scales_of
from tests.quantize.planning.models import joined, residual_mismatch
from torq_byoc.errors import QuantizationError
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.precision_plan import PrecisionPlan, TensorPrecision

INT16 = TensorPrecision(dtype="int16")


def types(quantized: onnx.ModelProto) -> dict[str, int]:
    """Element type of the codes of every quantized tensor, by the float tensor's name."""
    constants = {tensor.name: tensor for tensor in quantized.graph.initializer}
    return {
        node.name.removesuffix("_QuantizeLinear"): constants[node.input[2]].data_type
        for node in quantized.graph.node
        if node.op_type == "QuantizeLinear"
    }


def test_a_plan_survives_its_file(tmp_path):
    plan = PrecisionPlan(
        dtype="int16",
        method="percentile",
        tensors={"b": TensorPrecision(low=-1.5, high=2.0), "a": TensorPrecision(dtype="int8", method="minmax")},
        nodes={"conv": "bf16"},
    )
    path = tmp_path / "plan.json"
    path.write_text(plan.dumps())
    assert PrecisionPlan.read(path).dumps() == plan.dumps()
    assert plan.dumps().index('"a"') < plan.dumps().index('"b"')
    assert (plan.dtype_of("a"), plan.dtype_of("b"), plan.range_of("b")) == ("int8", "int16", (-1.5, 2.0))
    assert plan.methods == ("minmax", "percentile")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("{}", "version is 0"),
        ('{"version": 2}', "version is 2"),
        ('{"version": 1, "dtype": "int4"}', "int4"),
        ('{"version": 1, "colour": 1}', "colour"),
        ('{"version": 1, "nodes": {"m": "bf16", "n": "int8"}}', "$.nodes['n']"),
        ('{"version": 1, "tensors": {"x": {}, "y": {"dtype": 8}}}', "$.tensors['y'].dtype"),
        ('{"version": 1, "tensors": {"x": {}, "x": {}}}', "twice"),
        ('{"version": 1, "tensors": {"x": {"low": 1.0}}}', "two ends"),
        ('{"version": 1, "tensors": {"x": {"low": 1.0, "high": 2.0, "method": "minmax"}}}', "two ends"),
        ('{"version": 1, "tensors": {"x": {"low": 2.0, "high": 1.0}}}', "low is 2.0"),
        ('{"version": 1, "tensors": {"x": {"low": 0.0, "high": 1e300}}}', "high is 1e+300"),
        ('{"version": 1, "room": 0.5}', "room is 0.5"),
        ('{"version": 1, "room": 4.5}', "room is 4.5"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_file(tmp_path, text, why):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(QuantizationError) as refusal:
        PrecisionPlan.read(path)
    assert why in refusal.value.why and str(path) in refusal.value.where and refusal.value.remedy


def test_only_the_tensors_named_are_wide():
    model, data = residual_mismatch()
    quantized = quantize_model(model, data, plan=PrecisionPlan(tensors={"d": INT16}))
    onnx.checker.check_model(quantized, full_check=True)
    found = types(quantized)
    assert found.pop("d") == TensorProto.INT16
    assert set(found) == {"x", "b", "c", "y"} and set(found.values()) == {TensorProto.INT8}


def test_what_shares_the_codes_of_a_wide_tensor_is_wide():
    model, data = joined()
    found = types(quantize_model(model, data, plan=PrecisionPlan(tensors={"x": INT16})))
    assert {name for name, kind in found.items() if kind == TensorProto.INT16} == {"x", "p"}


def test_operands_of_a_concatenation_share_its_scale_only_in_its_type():
    model, data = joined()
    quantized = quantize_model(model, data, plan=PrecisionPlan(tensors={"a": INT16}))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    scales = {
        node.name.removesuffix("_QuantizeLinear"): float(constants[node.input[1]])
        for node in quantized.graph.node
        if node.op_type == "QuantizeLinear"
    }
    assert types(quantized)["a"] == TensorProto.INT16
    assert scales["b"] == scales["j"] == scales["r"] and scales["a"] < scales["j"] / 100


def test_a_range_of_the_plan_takes_the_place_of_a_calibrator():
    model, data = residual_mismatch()
    quantized = quantize_model(model, data, plan=PrecisionPlan(tensors={"c": TensorPrecision(low=-1.0, high=1.55)}))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    node = next(node for node in quantized.graph.node if node.name == "y_QuantizeLinear")
    other = next(node for node in quantized.graph.node if node.name == "c_QuantizeLinear")
    scale = float(constants[other.input[1]])  # additions round the smaller of two scales up, by a sixteenth at most
    assert 0.01 <= scale <= 0.01 * (1 + 1 / 16)
    assert float(constants[node.input[1]]) > 0.011


def test_room_widens_ranges_of_8_bits_that_a_calibrator_without_room_found():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xy")
    nodes = [
        helper.make_node(kind, [source], [result], name=result)
        for kind, source, result in (("Neg", "x", "b"), ("Neg", "b", "c"), ("Tanh", "c", "y"))
    ]
    graph = helper.make_graph(nodes, "m", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data = {"x": np.array([[0.0, 0.7]], np.float32)}
    wide = TensorPrecision(dtype="int16", method="minmax")
    fixed = {"b": TensorPrecision(low=-1.0, high=0.0), "c": wide}
    plain, roomy = (
        scales_of(quantize_model(model, data, plan=PrecisionPlan(room=room, tensors=fixed))) for room in (1.0, 1.25)
    )
    assert plain["x"] == pytest.approx(0.7 / 255) and roomy["x"] == pytest.approx(0.875 / 255)
    assert roomy["b"] == plain["b"] and roomy["c"] == plain["c"] == pytest.approx(0.7 / 32767)
    assert roomy["y"] == plain["y"] == pytest.approx(1 / 127)
    spare = PrecisionPlan(room=1.25, method="headroom")
    assert scales_of(quantize_model(model, data, plan=spare))["x"] == pytest.approx(1.4 / 255)


def test_a_plan_made_in_python_is_held_to_the_same_numbers():
    with pytest.raises(QuantizationError, match="room"):
        PrecisionPlan(room=float("nan"))
    with pytest.raises(QuantizationError, match="no range"):
        PrecisionPlan(tensors={"x": TensorPrecision(low=1.0)})


def test_constants_are_as_wide_as_their_peers():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 3])
    table = numpy_helper.from_array(np.linspace(-1, 3, 12, dtype=np.float32).reshape(1, 4, 3), "table")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "table"], ["y"], name="y")], "m", [x], [y], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data = {"x": np.random.default_rng(0).standard_normal((3, 4, 3)).astype(np.float32)}
    for plan, kind in ((PrecisionPlan(), TensorProto.INT8), (PrecisionPlan(tensors={"y": INT16}), TensorProto.INT16)):
        quantized = quantize_model(model, data, plan=plan)
        (codes,) = [tensor for tensor in quantized.graph.initializer if list(tensor.dims) == [1, 4, 3]]
        assert codes.data_type == kind


def test_a_float_operator_reads_what_a_float_operator_makes():
    """Between two bf16 operators nothing is quantized; towards integers everything is."""
    model, data = residual_mismatch()
    quantized = quantize_model(model, data, plan=PrecisionPlan(nodes={"a": "bf16", "b": "bf16", "c": "bf16"}))
    nodes = {node.name: node for node in quantized.graph.node}
    assert nodes["a"].input[0] == "x" and nodes["b"].input[0] == "a" and nodes["c"].input[0] == "b"
    assert set(types(quantized)) == {"x", "c", "d", "y"}
    assert nodes["d"].input[0] != "c"


@pytest.mark.parametrize(
    ("plan", "what", "remedy"),
    [
        (PrecisionPlan(tensors={"dd": INT16}), "names tensors", "did you mean 'd'"),
        (PrecisionPlan(nodes={"con": "bf16"}), "names operators", "use one of a, b, c, d, y"),
        (PrecisionPlan(tensors={"a": INT16}), "names tensors", "use one of"),
    ],
)
def test_names_that_the_model_does_not_quantize(plan, what, remedy):
    model, data = residual_mismatch()
    with pytest.raises(QuantizationError, match=what) as refusal:
        quantize_model(model, data, plan=plan)
    assert remedy in refusal.value.remedy


def test_a_tensor_without_codes_of_its_own_is_refused_with_the_one_that_has_them():
    model, data = joined()
    with pytest.raises(QuantizationError, match="without a quantization of its own") as refusal:
        quantize_model(model, data, plan=PrecisionPlan(tensors={"p": INT16}))
    assert refusal.value.remedy == "name x instead"
