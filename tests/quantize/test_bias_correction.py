"""What rounding weights adds to means: against running the layer, and as seen in a quantized network."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.quantize.models import parsed, shape_text
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.bias_correction import InputMeans
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator

LAYERS = {
    "conv": (
        "Conv<kernel_shape=[3,2], pads=[2,0,1,1], strides=[2,1], dilations=[1,2]>(x, w)",
        (2, 4, 9, 7),
        (6, 4, 3, 2),
    ),
    "grouped": ("Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=2>(x, w)", (1, 4, 5, 6), (6, 2, 3, 3)),
    "depthwise": ("Conv<kernel_shape=[5,5], pads=[2,2,2,2], group=4>(x, w)", (1, 4, 6, 6), (4, 1, 5, 5)),
    "conv1d": ("Conv<kernel_shape=[3], pads=[1,0]>(x, w)", (1, 3, 8), (2, 3, 3)),
    "matmul": ("MatMul(x, w)", (2, 3, 5), (5, 4)),
    "gemm": ("Gemm(x, w)", (3, 5), (5, 4)),
}


def layer(call: str, x: tuple[int, ...], weights: np.ndarray) -> onnx.ModelProto:
    return parsed(f"y = {call}", f"float[{shape_text(x)}] x", constants={"w": weights})


@pytest.mark.parametrize("name", LAYERS)
def test_it_is_the_mean_of_what_the_layer_adds(name: str) -> None:
    call, x_shape, w_shape = LAYERS[name]
    rng = np.random.default_rng(5)
    exact = rng.standard_normal(w_shape)
    rounded = exact + rng.uniform(-0.1, 0.1, w_shape)
    feeds = [{"x": rng.uniform(1.0, 1.2, x_shape).astype(np.float32)} for _ in range(3)]
    model = layer(call, x_shape, exact)
    means = InputMeans(model)
    for feed in feeds:
        means.add(feed)
    difference = layer(call, x_shape, rounded - exact)
    added = np.concatenate([Evaluator(difference).outputs(feed)["y"] for feed in feeds])
    axis = 1 if name.startswith(("conv", "grouped", "depthwise")) else added.ndim - 1
    expected = added.mean(axis=tuple(i for i in range(added.ndim) if i != axis))
    np.testing.assert_allclose(means.shift(model.graph.node[0].name, exact, rounded), expected, atol=1e-6)


def test_one_sample_or_samples_that_disagree_tell_nothing() -> None:
    exact, rounded = np.zeros((4, 2)), np.full((4, 2), 0.5)
    model = layer("MatMul(x, w)", (1, 4), exact)
    (name,) = (node.name for node in model.graph.node)
    means = InputMeans(model)
    means.add({"x": np.ones((1, 4), np.float32)})
    assert means.shift(name, exact, rounded) is None
    means.add({"x": -np.ones((1, 4), np.float32)})
    assert means.shift(name, exact, rounded) is None
    assert means.shift("another", exact, rounded) is None


@pytest.mark.parametrize("dense", [False, True])
def test_means_of_a_quantized_network_are_those_of_the_float_one(dense: bool) -> None:
    """Sums of 64 positive inputs: without the correction their means are off by more than the rest of the noise."""
    rng = np.random.default_rng(1)
    shape, weights = ((1, 8, 8, 64), (64, 16)) if dense else ((1, 64, 8, 8), (16, 64, 1, 1))
    body = "a = Relu(x) m = MatMul(a, w) y = Add(m, b)" if dense else "a = Relu(x) y = Conv(a, w, b)"
    constants = {"w": rng.standard_normal(weights), "b": rng.standard_normal(16)}
    model = parsed(body, f"float[{shape_text(shape)}] x", constants=constants)
    data, fresh = ({"x": rng.uniform(0.5, 1.0, (n, *shape[1:])).astype(np.float32)} for n in (4, 8))
    wanted = [Evaluator(model).outputs(feed)["y"] for feed in samples(model, fresh)]

    def mean_error(corrected: bool) -> float:
        quantized = Float64Evaluator(quantize_model(model, data, correct_biases=corrected))
        errors = [quantized.outputs(feed)["y"] - y for feed, y in zip(samples(model, fresh), wanted, strict=True)]
        return float(np.abs(np.mean(errors, axis=(0, 1, 2, 3) if dense else (0, 1, 3, 4))).max())

    assert mean_error(True) < 0.25 * mean_error(False)
