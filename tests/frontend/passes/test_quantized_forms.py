"""Forms of quantized models that are rewritten, left alone, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx_tools import constants, graph_model, node, ops
from torq_byoc.errors import QuantizationError, ShapeError, TorqError, UnsupportedOpError
from torq_byoc.frontend import prepare, to_relax
from torq_byoc.frontend.passes.qoperators import REWRITES
from torq_byoc.frontend.validator.operators import CONTRIBUTED

F32 = np.float32
MS = "com.microsoft"


def test_every_contributed_operator_that_is_known_is_rewritten():
    assert {op for domain, op in REWRITES if domain == MS} == CONTRIBUTED


def attention(**changes):
    inputs = changes.pop("inputs", ["x", "w", "b", "xs", "ws"])
    outputs = changes.pop("outputs", ["y"])
    given = changes.pop("given", {})
    attributes = {"num_heads": 2, **changes}
    nodes = [helper.make_node("QAttention", inputs, outputs, "attention", domain=MS, **attributes)]
    held = {"w": np.ones((6, 12), np.int8), "b": np.zeros(12, F32), "xs": F32(1), "ws": F32(1)}
    kinds = {"x": TensorProto.UINT8, **{name: TensorProto.INT32 for name in given}}
    return graph_model(nodes, {"x": [2, 5, 6], **given}, outputs[:1], held, dtypes=kinds, domains=[MS])


def packed(**changes):
    attributes = {"K": 32, "N": 2, "bits": 4, "block_size": 32, **changes}
    inputs = ["x", "w", "s", "", "g"] if attributes.pop("reordered", False) else ["x", "w", "s"]
    nodes = [helper.make_node("MatMulNBits", inputs, ["y"], "packed", domain=MS, **attributes)]
    held = {"w": np.zeros((2, 1, 16), np.uint8), "s": np.ones(2, F32), "g": np.zeros(32, np.int32)}
    return graph_model(nodes, {"x": [1, 32]}, ["y"], held, domains=[MS])


def old_addition():
    inputs = ["x", "s", "z", "x", "s", "z", "s", "z"]
    nodes = [helper.make_node("QLinearAdd", inputs, ["y"], "add", domain=MS)]
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    held = {"s": F32(1), "z": np.uint8(0)}
    return graph_model(nodes, {"x": [2]}, ["y"], held, dtypes=kinds, domains=[MS], opset=9)


def scales_along_two_axes():
    nodes = [node("QLinearMatMul", ["x", "s", "z", "w", "ws", "wz", "s", "z"], "y", "product")]
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    held = {"s": F32(1), "z": np.uint8(0), "w": np.ones((2, 5, 4), np.int8)}
    held |= {"ws": np.ones((2, 1, 4), F32), "wz": np.zeros((2, 1, 4), np.int8)}
    return graph_model(nodes, {"x": [2, 3, 5]}, ["y"], held, dtypes=kinds)


REFUSED = {
    "cached keys": (attention(outputs=["y", "present"]), "attention", "earlier calls"),
    "causal attention": (attention(unidirectional=1), "attention", "unidirectional"),
    "uneven heads": (attention(num_heads=5), "attention", "5 heads"),
    "mask of lengths": (attention(inputs=["x", "w", "b", "xs", "ws", "m"], given={"m": [2]}), "attention", "'m'"),
    "3 bits": (packed(bits=3), "packed", "3 bits"),
    "too few bytes": (packed(K=64), "packed", "bytes"),
    "reordered columns": (packed(reordered=True), "packed", "reordered"),
    "an operator set without scales": (old_addition(), "add", "operator set is 9"),
    "scales along two axes": (scales_along_two_axes(), "product", "along one axis"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_node_and_reason(case):
    model, name, reason = REFUSED[case]
    with pytest.raises(UnsupportedOpError) as error:
        prepare(model)
    assert name in error.value.where and reason in error.value.why and error.value.remedy


def test_unsigned_16_bit_numbers_that_are_computed_with_stay():
    """A cast sees the codes as numbers."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q", "quantize"),
        node("Cast", ["q"], "n", "cast", to=TensorProto.INT32),
        node("DequantizeLinear", ["q", "s", "z"], "y", "dequantize"),
    ]
    held = {"s": F32(0.1), "z": np.uint16(7)}
    model = graph_model(nodes, {"x": [3]}, ["y", "n"], held, opset=21, dtypes={"n": TensorProto.INT32})
    assert constants(prepare(model))["z"].dtype == np.uint16


def test_weights_with_scales_of_output_channels_are_left_alone():
    nodes = [
        node("DequantizeLinear", ["xq", "s"], "x", "dqx"),
        node("DequantizeLinear", ["w", "ws"], "wd", "dqw", axis=0),
        node("Conv", ["x", "wd"], "c", "conv"),
        node("QuantizeLinear", ["c", "s"], "y", "q"),
    ]
    held = {"s": F32(1), "w": np.ones((4, 3, 1, 1), np.int8), "ws": np.ones(4, F32)}
    kinds = {"xq": TensorProto.UINT8, "y": TensorProto.UINT8}
    result = prepare(graph_model(nodes, {"xq": [1, 3, 4, 4]}, ["y"], held, dtypes=kinds))
    assert constants(result)["w"].dtype == np.int8
    assert ops(result) == ["DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"]


def test_factors_of_a_quantized_gemm_go_into_its_scales():
    """alpha = 0.5 halves the weights' scale; a negative factor has no scale, and stays."""
    held = {"s": F32(1), "w": np.ones((5, 4), np.int8), "ws": F32(0.25)}
    kinds = {"xq": TensorProto.UINT8, "y": TensorProto.UINT8}
    for alpha, scale, kept in ((0.5, 0.125, False), (-2.0, 0.25, True)):
        nodes = [
            node("DequantizeLinear", ["xq", "s"], "x", "dqx"),
            node("DequantizeLinear", ["w", "ws"], "wd", "dqw"),
            node("Gemm", ["x", "wd"], "c", "gemm", alpha=alpha),
            node("QuantizeLinear", ["c", "s"], "y", "q"),
        ]
        result = prepare(graph_model(nodes, {"xq": [3, 5]}, ["y"], held, dtypes=kinds))
        dequantize = next(n for n in result.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == "w")
        assert constants(result)[dequantize.input[1]] == scale
        gemm = next(n for n in result.graph.node if n.op_type == "Gemm")
        assert any(a.name == "alpha" for a in gemm.attribute) == kept


def test_zero_points_that_fit_no_tensor_are_refused():
    nodes = [node("ConvInteger", ["x", "w", "xz", "wz"], "y", "conv")]
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
    good = {"w": np.ones((4, 3, 1, 1), np.int8), "xz": np.uint8(1), "wz": np.zeros(4, np.int8)}
    for damage in ({"xz": np.ones(2, np.uint8)}, {"wz": np.zeros(3, np.int8)}):
        model = graph_model(nodes, {"x": [1, 3, 4, 4]}, ["y"], good | damage, dtypes=kinds)
        with pytest.raises(QuantizationError, match="zero point") as error:
            to_relax(prepare(model))
        assert "conv" in error.value.where and error.value.remedy


def test_blocks_of_scales_that_do_not_fit_are_refused():
    for size, shape in ((3, (2, 4)), (4, (2, 3)), (4, (8,)), (-1, (2, 4))):
        nodes = [
            node("DequantizeLinear", ["w", "s"], "d", "weights", axis=0, block_size=size),
            node("Add", ["x", "d"], "y"),
        ]
        held = {"w": np.ones((8, 4), np.int8), "s": np.ones(shape, F32)}
        with pytest.raises(TorqError) as error:
            prepare(graph_model(nodes, {"x": [8, 4]}, ["y"], held, opset=21))
        assert isinstance(error.value, QuantizationError | ShapeError) and error.value.remedy


def test_zero_scale_of_an_integer_operator_is_refused():
    inputs = ["x", "s", "z", "x", "s", "z", "s", "z"]
    nodes = [helper.make_node("QLinearAdd", inputs, ["y"], "add", domain=MS)]
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    held = {"s": F32(0), "z": np.uint8(0)}
    with pytest.raises(QuantizationError, match="scale"):
        prepare(graph_model(nodes, {"x": [2]}, ["y"], held, dtypes=kinds, domains=[MS]))
