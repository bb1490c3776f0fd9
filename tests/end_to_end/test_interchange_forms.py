"""The forms that QDQ models come in: operator sets, element types, parameters left out, blocks, domains.

One convolution in all of them, float in and float out, against brute force.  The inputs are what their codes stand
for, so quantizing them is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import torq_byoc
from tests.end_to_end.exact_integers import F32, Codes, awkward, convolve
from tests.end_to_end.harness import compile_and_compare
from tests.frontend.onnx_tools import graph_model, node
from torq_byoc.frontend import prepare
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize import quantize_model

I8, U8, I16, U16 = np.int8, np.uint8, np.int16, np.uint16
MS = "com.microsoft"
SHAPE, PADS = (4, 5, 3, 2), (1, 0, 1, 2)
FOUR_BITS = {"INT4": (-8, 7, I8), "UINT4": (0, 15, U8)}


@dataclass(frozen=True)
class Form:
    """How the convolution is written down.

    Attributes:
        data: input and result; their scales differ.
        weight_type: numpy type, or the name of a 4-bit one.
        axis, blocks: of the weights' scales; None for one scale.
        scale_type: of all scales, and of the floats between them.
        zeros: whether zero points are written.
        tolerance: codes.
    """

    data: tuple[type, int] = (I8, 3)
    weight_type: Any = I8
    weight_zero: int = 0
    axis: int | None = 0
    blocks: int = 0
    opset: int = 21
    domain: str = ""
    scale_type: type = F32
    zeros: bool = True
    scales_in_nodes: bool = False
    on_npu: bool = True
    tolerance: int = 0


FORMS = {
    "opset 10, one scale": Form(opset=10, axis=None),
    "opset 13": Form(opset=13),
    "opset 19": Form(opset=19, data=(U8, 255)),
    "opset 25": Form(opset=25),
    "uint8 everywhere": Form(data=(U8, 0), weight_type=U8, weight_zero=128),
    "int8 data, uint8 weights": Form(data=(I8, -128), weight_type=U8, weight_zero=115),
    "int16": Form(data=(I16, 0)),
    "int16 off centre": Form(data=(I16, -32768)),
    "uint16": Form(data=(U16, 32768)),
    "uint16 off centre": Form(data=(U16, 65535)),
    "uint16 without zero points": Form(data=(U16, 0), zeros=False),
    "int16 weights": Form(weight_type=I16),
    "uint16 weights": Form(weight_type=U16, weight_zero=32768),
    "uint16 weights far off centre": Form(weight_type=U16, weight_zero=0, on_npu=False),
    "int4 weights": Form(weight_type="INT4"),
    "uint4 weights": Form(weight_type="UINT4", weight_zero=7),
    "int4 weights in blocks": Form(weight_type="INT4", axis=1, blocks=2),
    "uint4 weights in blocks that do not divide": Form(weight_type="UINT4", weight_zero=15, axis=1, blocks=3),
    "int8 weights in one block": Form(axis=1, blocks=5),
    "scales of input channels": Form(axis=1),
    "scales of a window's columns": Form(axis=3, weight_type=U8, weight_zero=100),
    "negative axis": Form(axis=-4),
    "zero points left out": Form(data=(U8, 0), weight_type=I8, zeros=False),
    "Constant nodes": Form(scales_in_nodes=True),
    "float16": Form(scale_type=np.float16, tolerance=1),
    "float16 and int4": Form(scale_type=np.float16, weight_type="INT4", tolerance=1),
    "contributed": Form(domain=MS, opset=17),
    "contributed, int16 before its time": Form(domain=MS, opset=17, data=(I16, 0)),
    "contributed, uint16 before its time": Form(domain=MS, opset=13, data=(U16, 1000)),
    "contributed, int4 before its time": Form(domain=MS, opset=17, weight_type="INT4"),
}


def weight_codes(form):
    rng = np.random.default_rng(5)
    low, high = FOUR_BITS[form.weight_type][:2] if isinstance(form.weight_type, str) else limits(form.weight_type)
    return rng.integers(low, high, SHAPE, endpoint=True)


def limits(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def stored(name, values, form):
    """A tensor of the weights' type."""
    if isinstance(form.weight_type, str):
        kind = getattr(TensorProto, form.weight_type)
        return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())
    return numpy_helper.from_array(values.astype(form.weight_type), name)


def scale_shape(form):
    if form.axis is None:
        return ()
    if form.blocks:
        return tuple(-(-n // form.blocks) if axis == form.axis else n for axis, n in enumerate(SHAPE))
    return (SHAPE[form.axis],)


def x_type(form):
    return np.dtype(form.data[0])


def build(form, data, result, codes, scale):
    zero = {"xz": np.array(data.zero, data.dtype), "yz": np.array(result.zero, result.dtype)} if form.zeros else {}
    held = {"xs": np.array(data.scale, form.scale_type), "ys": np.array(result.scale, form.scale_type), "ws": scale}
    xz, yz, wz = (["xz"], ["yz"], ["wz"]) if form.zeros else ([], [], [])
    axis = {} if form.axis is None else {"axis": form.axis}
    blocks = {"block_size": form.blocks} if form.blocks else {}
    typed = {} if form.zeros or data.dtype == U8 else {"output_dtype": helper.np_dtype_to_tensor_dtype(x_type(form))}

    def quantize(source, kind, zero_point, target):
        inputs = [source, f"{kind}s", *zero_point]
        return helper.make_node("QuantizeLinear", inputs, [target], f"q_{kind}", domain=form.domain, **typed)

    def dequantize(source, kind, zero_point, target, **attributes):
        inputs = [source, f"{kind}s", *zero_point]
        return helper.make_node("DequantizeLinear", inputs, [target], f"dq_{kind}", domain=form.domain, **attributes)

    nodes = [
        quantize("x", "x", xz, "xq"),
        dequantize("xq", "x", xz, "xd"),
        dequantize("w", "w", wz, "wd", **axis, **blocks),
        node("Conv", ["xd", "wd"], "c", "conv", pads=list(PADS)),
        quantize("c", "y", yz, "yq"),
        dequantize("yq", "y", yz, "y"),
    ]
    kind = TensorProto.FLOAT if form.scale_type is F32 else TensorProto.FLOAT16
    if form.scales_in_nodes:
        made = {name: numpy_helper.from_array(value) for name, value in held.items()}
        nodes = [helper.make_node("Constant", [], [name], value=value) for name, value in made.items()] + nodes
        held = {}
    types = {"dtypes": {"x": kind}, "output_dtype": kind, "domains": [form.domain] if form.domain else []}
    model = graph_model(nodes, {"x": [1, 5, 7, 6]}, ["y"], held | zero, opset=form.opset, **types)
    model.ir_version = 10
    model.graph.initializer.append(stored("w", codes, form))
    if form.zeros:
        model.graph.initializer.append(stored("wz", np.full(scale.shape, form.weight_zero), form))
    return model


@pytest.mark.parametrize("case", FORMS)
def test_form(case):
    form = FORMS[case]
    dtype, zero = form.data
    wide = np.dtype(dtype).itemsize > 1
    data, result = Codes(0.0002 if wide else 0.03, zero, dtype), Codes(0.0004 if wide else 0.21, zero, dtype)
    if form.scale_type is not F32:
        data, result = (Codes(float(form.scale_type(kind.scale)), zero, dtype) for kind in (data, result))
    codes = weight_codes(form)
    peak = np.abs(codes - form.weight_zero).max()
    scale = (np.random.default_rng(6).uniform(0.3, 1.0, scale_shape(form)) / peak).astype(form.scale_type)
    x = awkward((1, 5, 7, 6), data)
    fed = data.real(x).astype(form.scale_type)
    outcome = compile_and_compare(build(form, data, result, codes, scale), {"x": fed}, NpuConfig())
    behind = {op.op for op in outcome.compiled.facts.cpu_ops} - {"quantize", "dequantize", "astype"}
    assert (not behind) == form.on_npu, outcome.compiled.facts.cpu_ops
    spread = scale.astype(np.float64)
    if form.axis is not None and form.blocks:
        spread = np.repeat(spread, form.blocks, form.axis).take(range(SHAPE[form.axis]), form.axis)
    elif form.axis is not None:
        spread = spread.reshape([-1 if axis == form.axis % 4 else 1 for axis in range(4)])
    exact = convolve(data.real(x), (codes - form.weight_zero) * spread, (1, 1), PADS)
    steps = np.rint(outcome.outputs["y"].astype(np.float64) / result.factor)
    wanted = result.codes(exact).astype(np.int64) - zero
    assert np.abs(steps - wanted).max() <= form.tolerance
    assert len(np.unique(wanted)) > 8


def test_unsigned_16_bit_codes_as_inputs_and_outputs():
    data, weight, result = Codes(0.0002, 40000, U16), Codes(0.004, 0, I8), Codes(0.00031, 7, U16)
    x, w = awkward((1, 3, 5, 4), data), awkward((2, 3, 1, 1), weight, 1)
    held = {"xs": F32(data.scale), "xz": data.zero_point, "w": w, "ws": F32(weight.scale), "wz": weight.zero_point}
    held |= {"ys": F32(result.scale), "yz": result.zero_point}
    nodes = [
        node("Transpose", ["x"], "t", "turn", perm=[0, 1, 3, 2]),
        node("DequantizeLinear", ["t", "xs", "xz"], "xd", "dq"),
        node("DequantizeLinear", ["w", "ws", "wz"], "wd", "dqw"),
        node("Conv", ["xd", "wd"], "c", "conv"),
        node("QuantizeLinear", ["c", "ys", "yz"], "y", "q"),
    ]
    kinds = {"x": TensorProto.UINT16, "y": TensorProto.UINT16}
    outcome = compile_and_compare(
        graph_model(nodes, {"x": x.shape}, ["y"], held, opset=21, dtypes=kinds), {"x": x}, NpuConfig()
    )
    assert "nn.conv2d" not in {op.op for op in outcome.compiled.facts.cpu_ops}
    sums = convolve(data.centred(x).swapaxes(2, 3), weight.centred(w), (1, 1), (0, 0, 0, 0))
    wanted = result.of_terms((sums, data.factor * weight.factor))
    assert outcome.outputs["y"].dtype == U16 and len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(outcome.outputs["y"], wanted)


@pytest.mark.parametrize("kind", FOUR_BITS)
def test_activations_of_4_bits_are_cut_off_at_their_last_codes(kind):
    low, high, dtype = FOUR_BITS[kind]
    zero = low + 5
    data, result = Codes(0.03, 0, I8), Codes(0.21, zero, dtype)
    x = np.arange(-128, 128, dtype=I8).reshape(1, 4, 8, 8)
    nodes = [
        node("DequantizeLinear", ["x", "xs"], "xd", "dq"),
        node("Neg", ["xd"], "n", "neg"),
        node("QuantizeLinear", ["n", "ys", "yz"], "q", "q4"),
        node("DequantizeLinear", ["q", "ys", "yz"], "qd", "dq4"),
        node("QuantizeLinear", ["qd", "zs", "zz"], "y", "q8"),
    ]
    held = {"xs": F32(0.03), "ys": F32(0.21), "zs": F32(0.1), "zz": np.array(-3, I8)}
    kinds = {"x": TensorProto.INT8, "y": TensorProto.INT8}
    model = graph_model(nodes, {"x": x.shape}, ["y"], held, opset=21, dtypes=kinds)
    model.ir_version = 10
    model.graph.initializer.append(helper.make_tensor("yz", getattr(TensorProto, kind), [], [zero]))
    got = compile_and_compare(model, {"x": x}, NpuConfig()).outputs["y"]
    steps = np.clip(np.rint(-data.real(x) / result.factor), low - zero, high - zero)
    assert {low - zero, high - zero} <= set(np.unique(steps))
    np.testing.assert_array_equal(got, Codes(0.1, -3, I8).of_terms((steps.astype(np.int64), float(result.factor))))


def weight_only(bits, blocks):
    """Float data, weights of integers: a dense layer with bias and relu; the weights' codes."""
    rng = np.random.default_rng(9)
    w = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (32, 6))
    scales = {"axis": 0, "block_size": blocks} if blocks else {"axis": 1}
    nodes = [
        node("DequantizeLinear", ["w", "ws"], "wd", "dq", **scales),
        node("MatMul", ["x", "wd"], "m", "mm"),
        node("Add", ["m", "b"], "a", "add"),
        node("Relu", ["a"], "y", "relu"),
    ]
    scale = rng.uniform(0.01, 0.05, (32 // blocks, 6) if blocks else 6).astype(F32)
    held = {"ws": scale, "b": rng.standard_normal(6).astype(F32)}
    model = graph_model(nodes, {"x": [3, 32]}, ["y"], held, opset=21)
    model.ir_version = 10
    kind = TensorProto.INT4 if bits == 4 else TensorProto.INT8
    model.graph.initializer.append(helper.make_tensor("w", kind, w.shape, w.reshape(-1).tolist()))
    return model, w


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("blocks", [0, 8])
def test_models_with_quantized_weights_alone_run_in_bf16_and_int8(bits, blocks):
    model, _ = weight_only(bits, blocks)
    rng = np.random.default_rng(10)
    x, data = rng.standard_normal((3, 32)).astype(F32), rng.standard_normal((24, 32)).astype(F32)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    for options, precision, tolerance in (({}, "bf16", 2**-7), ({"calibration": {"x": data}}, "int8", 0.03)):
        compiled = torq_byoc.compile(model, **options)
        assert compiled.facts.precision == precision
        assert {op.op for op in compiled.facts.cpu_ops} <= {"quantize", "dequantize"}
        error = np.abs(compiled.run({"x": x})["y"].astype(np.float64) - wanted).max()
        assert error <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_keep_their_own_integers(bits):
    model, codes = weight_only(bits, 0)
    data = np.random.default_rng(10).standard_normal((24, 32)).astype(F32)
    quantized = quantize_model(prepare(model), {"x": data})
    (kept,) = [tensor for tensor in quantized.graph.initializer if list(tensor.dims) == [32, 6]]
    np.testing.assert_array_equal(numpy_helper.to_array(kept), codes.astype(I8))


def packed(codes):
    """Pairs of neighbours in a byte, the first one low."""
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(U8)


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_in_packed_bytes(zeros):
    """MatMulNBits: two codes a byte, blocks that do not divide the sum."""
    rng = np.random.default_rng(12)
    inner, columns, block, blocks = 40, 3, 16, 3
    codes = rng.integers(0, 16, (columns, blocks * block))
    offsets = rng.integers(0, 16, (columns, blocks + 1)) if zeros else np.full((columns, blocks + 1), 8)
    scale = rng.uniform(0.01, 0.1, (columns, blocks)).astype(F32)
    held = {"w": packed(codes).reshape(columns, blocks, block // 2), "s": scale.reshape(-1)}
    inputs = ["x", "w", "s"]
    if zeros:
        held["z"] = packed(offsets).reshape(-1)
        inputs.append("z")
    sizes = {"K": inner, "N": columns, "bits": 4, "block_size": block}
    nodes = [helper.make_node("MatMulNBits", inputs, ["y"], "n", domain=MS, **sizes)]
    model = graph_model(nodes, {"x": [2, inner]}, ["y"], held, domains=[MS])
    x = rng.standard_normal((2, inner)).astype(F32)
    real = (codes.reshape(columns, blocks, block) - offsets[:, :blocks, None]) * scale[..., None].astype(np.float64)
    wanted = x.astype(np.float64) @ real.reshape(columns, -1)[:, :inner].T
    got = torq_byoc.compile(model).run({"x": x})["y"]
    np.testing.assert_allclose(got, wanted, atol=2**-7 * np.abs(wanted).max(), rtol=0)


def test_blocked_weights_that_two_layers_read_stay_whole():
    model, codes = weight_only(8, 8)
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name != "w"}
    result = Codes(0.4, 3, I8)
    nodes = [
        node("DequantizeLinear", ["xq", "xs"], "x", "dqx"),
        node("DequantizeLinear", ["w", "ws"], "wd", "dq", axis=0, block_size=8),
        *(node("MatMul", ["x", "wd"], f"m{i}", f"mm{i}") for i in (1, 2)),
        *(node("QuantizeLinear", [f"m{i}", "ys", "yz"], f"y{i}", f"q{i}") for i in (1, 2)),
    ]
    held |= {"w": codes.astype(I8), "xs": F32(0.02), "ys": F32(result.scale), "yz": result.zero_point}
    kinds = {"xq": TensorProto.INT8, "y1": TensorProto.INT8, "y2": TensorProto.INT8}
    model = graph_model(nodes, {"xq": [3, 32]}, ["y1", "y2"], held, opset=21, dtypes=kinds)
    x = awkward((3, 32), Codes(0.02, 0, I8))
    outcome = compile_and_compare(model, {"xq": x}, NpuConfig())
    assert not outcome.compiled.facts.cpu_ops
    weights = codes * np.repeat(held["ws"].astype(np.float64), 8, axis=0)
    for name in ("y1", "y2"):
        np.testing.assert_array_equal(outcome.outputs[name], result.codes((x * float(F32(0.02))) @ weights))


def test_4_bit_inputs_are_refused_by_name():
    nodes = [node("DequantizeLinear", ["x", "s"], "y", "dq")]
    model = graph_model(nodes, {"x": [2, 3]}, ["y"], {"s": F32(1)}, opset=21, dtypes={"x": TensorProto.INT4})
    model.ir_version = 10
    with pytest.raises(torq_byoc.TorqError, match="INT4"):
        prepare(model)
