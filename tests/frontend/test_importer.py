"""to_relax: what each operator becomes, and its numbers against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import torq_byoc
from tests.frontend.onnx_tools import graph_model, node, random_feeds, run_reference, shared_model
from tests.frontend.relax_tools import F32, X4, assert_matches, calls, const, relax_ops, run_relax, weights
from torq_byoc.errors import TorqError
from torq_byoc.frontend import load_model, prepare, to_relax

FORMS = {
    # name: (nodes, inputs, constants, opset, Relax operators)
    "relu6": ([node("Clip", ["x", "lo", "hi"], "y")], X4, const(lo=F32(0), hi=F32(6)), 13, ["clip"]),
    "clip is relu": ([node("Clip", ["x", "lo"], "y")], X4, const(lo=F32(0)), 13, ["nn.relu"]),
    "clip above": ([node("Clip", ["x", "", "hi"], "y")], X4, const(hi=F32(0.5)), 13, ["clip"]),
    "clip with NaN bound": ([node("Clip", ["x", "lo", "hi"], "y")], X4, const(lo=F32(np.nan), hi=F32(1)), 13, ["clip"]),
    "clip by attributes": ([node("Clip", ["x"], "y", min=-0.5, max=0.25)], X4, {}, 10, ["clip"]),
    "max": ([node("Max", ["x", "k"], "y")], X4, const(k=weights(6, 1, 1)), 13, ["maximum"]),
    "min of three": ([node("Min", ["x", "k", "k"], "y")], X4, const(k=weights(4)), 13, ["minimum", "minimum"]),
    "sum": ([node("Sum", ["x", "x", "k"], "y")], X4, const(k=weights(5, 4)), 13, ["add", "add"]),
    "mean of two": ([node("Mean", ["x", "k"], "y")], X4, const(k=weights(5, 4)), 13, ["add", "multiply"]),
    "square": ([node("Pow", ["x", "k"], "y")], X4, const(k=F32(2)), 13, ["multiply"]),
    "square, integer exponent": ([node("Pow", ["x", "k"], "y")], X4, const(k=np.int64(2)), 13, ["multiply"]),
    "cube": ([node("Pow", ["x", "k"], "y")], X4, const(k=F32(3)), 13, ["multiply", "multiply"]),
    "prelu per channel": ([node("PRelu", ["x", "k"], "y")], X4, const(k=weights(6, 1, 1)), 13, ["nn.prelu"]),
    "prelu last axis": ([node("PRelu", ["x", "k"], "y")], X4, const(k=weights(4)), 13, ["nn.prelu"]),
    "prelu single": ([node("PRelu", ["x", "k"], "y")], X4, const(k=weights(1)), 13, ["nn.leakyrelu"]),
    "prelu spread": (
        [node("PRelu", ["x", "k"], "y")],
        X4,
        const(k=weights(6, 5, 1)),
        13,
        ["nn.relu", "minimum", "multiply", "add"],
    ),
    "leaky": ([node("LeakyRelu", ["x"], "y", alpha=0.3)], X4, {}, 13, ["nn.leakyrelu"]),
    "hard sigmoid": ([node("HardSigmoid", ["x"], "y", alpha=0.3)], X4, {}, 13, ["multiply", "add", "clip"]),
    "hard swish": ([node("HardSwish", ["x"], "y")], X4, {}, 14, ["add", "clip", "divide", "multiply"]),
    "erf": ([node("Erf", ["x"], "y")], X4, {}, 13, ["erf"]),
    "elu": ([node("Elu", ["x"], "y", alpha=0.7)], X4, {}, 13, None),
    "mish": ([node("Mish", ["x"], "y")], X4, {}, 18, None),
    "softmax": ([node("Softmax", ["x"], "y", axis=1)], X4, {}, 13, ["nn.softmax"]),
    "old softmax, last axis": ([node("Softmax", ["x"], "y", axis=3)], X4, {}, 11, ["nn.softmax"]),
    "flatten": ([node("Flatten", ["x"], "y", axis=-2)], X4, {}, 13, ["reshape"]),
    "squeeze all": ([node("Squeeze", ["x"], "y")], {"x": [1, 3, 1]}, {}, 13, ["reshape"]),
    "squeeze old": ([node("Squeeze", ["x"], "y", axes=[-1])], {"x": [1, 3, 1]}, {}, 11, ["reshape"]),
    "unsqueeze": ([node("Unsqueeze", ["x", "k"], "y")], X4, const(k=np.array([-1, 0])), 13, ["reshape"]),
    "reshape": ([node("Reshape", ["x", "k"], "y")], X4, const(k=np.array([0, -1])), 13, ["reshape"]),
    "pad": (
        [node("Pad", ["x", "k", "v"], "y")],
        X4,
        const(k=np.array([0, 1, 0, 2, 0, 0, 3, 0]), v=F32(-7)),
        13,
        ["nn.pad"],
    ),
    "pad reflect": (
        [node("Pad", ["x", "k"], "y", mode="reflect")],
        X4,
        const(k=np.array([0, 0, 1, 2, 0, 0, 3, 0])),
        13,
        ["nn.pad"],
    ),
    "pad edge": (
        [node("Pad", ["x", "k"], "y", mode="edge")],
        X4,
        const(k=np.array([0, 0, 1, 2, 0, 0, 3, 0])),
        13,
        ["nn.pad"],
    ),
    "crop": ([node("Pad", ["x", "k"], "y")], X4, const(k=np.array([0, -1, 0, 0, 0, -2, 0, 0])), 13, ["strided_slice"]),
    "pad by axes": (
        [node("Pad", ["x", "k", "", "a"], "y")],
        X4,
        const(k=np.array([1, 2, 3, 0]), a=np.array([-1, 2])),
        18,
        ["nn.pad"],
    ),
    "tile": ([node("Tile", ["x", "k"], "y")], X4, const(k=np.array([1, 2, 1, 3])), 13, ["tile"]),
    "gather": ([node("Gather", ["x", "k"], "y", axis=-1)], X4, const(k=np.array([[0, -1], [2, 1]])), 13, ["take"]),
    "gather scalar": ([node("Gather", ["x", "k"], "y", axis=1)], X4, const(k=np.array(-2)), 13, ["take"]),
    "slice": (
        [node("Slice", ["x", "b", "e", "a", "s"], "y")],
        X4,
        const(b=np.array([1, -1]), e=np.array([99, -9]), a=np.array([1, 3]), s=np.array([2, -2])),
        13,
        ["strided_slice"],
    ),
    "concat": ([node("Concat", ["x", "k"], "y", axis=1)], X4, const(k=weights(2, 1, 5, 4)), 13, ["concat"]),
    "transpose": ([node("Transpose", ["x"], "y", perm=[0, 3, 1, 2])], X4, {}, 13, ["permute_dims"]),
    "depth to space": (
        [node("DepthToSpace", ["x"], "y", blocksize=2, mode="CRD")],
        {"x": [1, 8, 3, 2]},
        {},
        13,
        ["reshape", "permute_dims", "reshape"],
    ),
    "upsample": ([node("Upsample", ["x", "k"], "y")], X4, const(k=np.array([1, 1, 2, 3], F32)), 9, ["image.resize2d"]),
    "resize 10": ([node("Resize", ["x", "k"], "y")], X4, const(k=np.array([1, 1, 2, 2], F32)), 10, ["image.resize2d"]),
    "resize nearest": (
        [node("Resize", ["x", "", "k"], "y", coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
        X4,
        const(k=np.array([1, 1, 2, 3], F32)),
        13,
        ["image.resize2d"],
    ),
    "resize linear to size": (
        [node("Resize", ["x", "r", "e", "k"], "y", mode="linear")],
        X4,
        const(k=np.array([2, 6, 11, 7]), r=np.zeros(0, F32), e=np.zeros(0, F32)),
        13,
        ["image.resize2d"],
    ),
    "resize by axes": (
        [node("Resize", ["x", "", "k"], "y", mode="linear", axes=[3, 2])],
        X4,
        const(k=np.array([2, 3], F32)),
        18,
        ["image.resize2d"],
    ),
    "lrn odd": ([node("LRN", ["x"], "y", size=3, alpha=0.5, beta=0.6, bias=2.0)], X4, {}, 13, None),
    "max pool": (
        [node("MaxPool", ["x"], "y", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1], ceil_mode=1)],
        X4,
        {},
        13,
        ["nn.max_pool2d"],
    ),
    "average pool": (
        [node("AveragePool", ["x"], "y", kernel_shape=[3, 3], pads=[1, 1, 0, 1], count_include_pad=0)],
        X4,
        {},
        13,
        ["nn.avg_pool2d"],
    ),
    "average pool with pads": (
        [node("AveragePool", ["x"], "y", kernel_shape=[3, 3], pads=[1, 1, 0, 1], count_include_pad=1)],
        X4,
        {},
        13,
        ["nn.avg_pool2d"],
    ),
    "global average": ([node("GlobalAveragePool", ["x"], "y")], X4, {}, 13, ["mean"]),
    "reduce mean": ([node("ReduceMean", ["x", "k"], "y", keepdims=0)], X4, const(k=np.array([-1])), 18, ["mean"]),
    "conv": (
        [node("Conv", ["x", "w", "b"], "y", strides=[2, 1], pads=[0, 1, 2, 1], group=2)],
        X4,
        const(w=weights(4, 3, 3, 3), b=weights(4)),
        13,
        ["nn.conv2d", "add"],
    ),
    "conv 1d": (
        [node("Conv", ["x", "w"], "y", dilations=[2])],
        {"x": [1, 3, 9]},
        const(w=weights(5, 3, 3)),
        13,
        ["nn.conv1d"],
    ),
    "transposed conv": (
        [node("ConvTranspose", ["x", "w", "b"], "y", strides=[2, 2], pads=[1, 0, 0, 1], output_padding=[1, 0])],
        X4,
        const(w=weights(6, 3, 3, 2), b=weights(3)),
        13,
        ["nn.conv2d_transpose", "add"],
    ),
    "gemm": (
        [node("Gemm", ["x", "w", "b"], "y")],
        {"x": [3, 4]},
        const(w=weights(4, 5), b=weights(5)),
        13,
        ["matmul", "add"],
    ),
    "layer norm": (
        [node("LayerNormalization", ["x", "g", "b"], "y", axis=-1)],
        X4,
        const(g=weights(4), b=weights(4)),
        17,
        ["nn.layer_norm"],
    ),
    "where": (
        [node("Greater", ["x", "k"], "c"), node("Where", ["c", "x", "k"], "y")],
        X4,
        const(k=F32(0.1)),
        13,
        ["greater", "where"],
    ),
    "expand": (
        [node("Expand", ["x", "k"], "y")],
        {"x": [2, 1, 4]},
        const(k=np.array([3, 1, 5, 1])),
        13,
        ["broadcast_to"],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    nodes, inputs, constants, opset, expected = FORMS[name]
    model = graph_model(nodes, inputs, ["y"], constants, opset=opset)
    if expected is not None:
        assert relax_ops(to_relax(prepare(model))) == expected
    assert_matches(model)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("count", [None, 1, 6])
def test_quantize_and_dequantize(dtype, count):
    """Every type, per tensor (0-d and 1-d) and per channel; ties, saturation and zero points at the edges."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    shape = () if count is None else (count,)
    zero = np.resize(np.array([low, high, 0, 1, 7, high - 1]), shape).astype(dtype) if shape else np.array(low, dtype)
    constants = {"s": np.full(shape, 0.25, F32), "z": zero}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q", axis=1),
        node("DequantizeLinear", ["q", "s", "z"], "y", axis=1),
    ]
    model = graph_model(nodes, {"x": [2, 6, 5]}, ["q", "y"], constants, opset=21, dtypes={"q": TensorProto.UNDEFINED})
    kinds = {np.int8: 3, np.uint8: 2, np.int16: 5, np.uint16: 4}
    model.graph.output[0].type.tensor_type.elem_type = kinds[dtype]
    x = np.random.default_rng(0).standard_normal((2, 6, 5)).astype(F32)
    x[0, :, 0], x[0, :, 1], x[1, :, 0] = 0.125, -0.375, 1e9  # two ties and one far outside
    # Unsigned 16-bit codes are signed ones inside; the model's output gets them back.
    found = [op for op in relax_ops(to_relax(prepare(model))) if dtype != np.uint16 or op not in ("astype", "add")]
    assert found == ["quantize", "dequantize"]
    assert_matches(model, rtol=0, feeds={"x": x})
    parameters = calls(to_relax(model))[0].args[1:]
    assert {p.ty.ndim for p in parameters} == {1 if count == 6 else 0}


@pytest.mark.parametrize(("low", "high"), [(-1e300, 1e300), (-2.0, 1e39), (-1e39, np.inf)])
def test_a_clip_of_doubles_may_have_bounds_that_no_single_holds(low, high):
    model = graph_model(
        [node("Clip", ["x", "lo", "hi"], "y")],
        {"x": [6]},
        ["y"],
        const(lo=np.array(low), hi=np.array(high)),
        dtypes={"x": TensorProto.DOUBLE, "y": TensorProto.DOUBLE},
    )
    x = np.array([-1e305, -3.0, 0.0, 1e38, 1e100, 1e305])
    assert_matches(model, rtol=0, feeds={"x": x})
    compiled = torq_byoc.compile(model)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], np.clip(x, low, high))


def test_missing_zero_point_becomes_zeros():
    nodes = [node("QuantizeLinear", ["x", "s"], "q"), node("DequantizeLinear", ["q", "s"], "y")]
    model = graph_model(nodes, {"x": [2, 3]}, ["y"], const(s=np.array([0.1, 0.2, 0.3], F32)))
    quantize = calls(to_relax(model))[0]
    assert quantize.args[2].value.numpy().tolist() == [0, 0, 0]
    assert_matches(model, rtol=0)


def test_gather_with_run_time_indices():
    model = graph_model([node("Gather", ["k", "x"], "y")], {"x": [4]}, ["y"], const(k=weights(7, 2)), dtypes={"x": 7})
    assert_matches(model, feeds={"x": np.array([-1, 0, 6, -7], np.int64)})


def test_gather_beyond_the_tensor_is_refused():
    model = graph_model([node("Gather", ["x", "k"], "y")], {"x": [4]}, ["y"], const(k=np.array([4])))
    with pytest.raises(TorqError, match="'n0'|beyond"):
        to_relax(model)


def test_if_on_a_run_time_condition_stays_a_branch():
    from onnx import helper

    out = [helper.make_tensor_value_info("t", 1, [2])]
    then, other = (helper.make_graph([node(op, ["x"], "t")], op, [], out) for op in ("Relu", "Neg"))
    nodes = [node("If", ["c"], "a", then_branch=then, else_branch=other), node("Exp", ["a"], "y")]
    model = graph_model(nodes, {"x": [2], "c": []}, ["y"], dtypes={"c": TensorProto.BOOL})
    for flag in (True, False):
        assert_matches(prepare(model), feeds={"x": np.array([-1, 2], F32), "c": np.array(flag)})


@pytest.mark.parametrize("name", ["dtln_2.onnx", "mtcnn_rnet.onnx", "qdq/resnet8_cifar_fp32.onnx"])
def test_trained_float_models(name):
    assert_matches(prepare(load_model(shared_model(name))), rtol=2e-5)


@pytest.mark.parametrize(
    ("name", "step"), [("peers/ad_autoenc_int8.onnx", 1.0), ("qdq/resnet8_cifar_qdq_s8s8_pc.onnx", 0.010526)]
)
def test_trained_quantized_models_agree_within_one_step(name, step):
    """TVM runs the float form of QDQ too; the order of its float sums may move a value that lies on a tie."""
    model = prepare(load_model(shared_model(name)))
    feeds = random_feeds(model)
    wanted, got = run_reference(model, feeds)[0], run_relax(to_relax(model), feeds)[0]
    difference = np.abs(wanted.astype(np.float64) - got.astype(np.float64))
    assert difference.max() <= step and (difference > 0).mean() <= 0.1


def test_local_response_over_an_even_window():
    """onnxruntime refuses even windows; ONNX defines them as one channel more behind than before."""
    model = graph_model([node("LRN", ["x"], "y", size=4, alpha=0.5, beta=0.5, bias=1.5)], X4, ["y"])
    x = random_feeds(model)["x"]
    squares = np.pad(np.square(x.astype(np.float64)), ((0, 0), (1, 2), (0, 0), (0, 0)))
    window = sum(squares[:, i : i + 6] for i in range(4))
    np.testing.assert_allclose(run_relax(to_relax(model), {"x": x})[0], x / np.sqrt(1.5 + 0.5 / 4 * window), rtol=1e-5)
