"""The encoder that compile time is measured on: valid, of the sizes that are named, and computing what one would."""

import math

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.depth import Encoder, encoder_model, measure, rows
from tests.relay_patterns.infra import onnxruntime_outputs

SMALL = Encoder(tokens=5, width=12, heads=3, inner=20)


def _layer(x: np.ndarray, weights: dict[str, np.ndarray], sizes: Encoder) -> np.ndarray:
    """One encoder layer in numpy, float64."""

    def linear(name: str, value: np.ndarray) -> np.ndarray:
        return value @ weights[f"layer0_{name}_w"] + weights[f"layer0_{name}_b"]

    def norm(value: np.ndarray) -> np.ndarray:
        return (value - value.mean(-1, keepdims=True)) / np.sqrt(value.var(-1, keepdims=True) + 1e-5)

    def by_head(value: np.ndarray) -> np.ndarray:
        return value.reshape(sizes.tokens, sizes.heads, -1).transpose(1, 0, 2)

    q, k, v = (by_head(linear(f"attention_{part}", x)) for part in "qkv")
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(sizes.width // sizes.heads)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (shares / shares.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(sizes.tokens, sizes.width)
    x = norm(x + linear("attention_out", mixed))
    wide = linear("up", x)
    erf = np.vectorize(math.erf)(wide / np.sqrt(2))
    return norm(x + linear("down", 0.5 * wide * (1 + erf)))


def test_a_layer_computes_attention_and_a_feed_forward_part() -> None:
    model = encoder_model(1, SMALL)
    onnx.checker.check_model(model, full_check=True)
    x = np.random.default_rng(0).standard_normal((1, SMALL.tokens, SMALL.width)).astype(np.float32)
    weights = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
    (result,) = onnxruntime_outputs(model, {"x": x})
    np.testing.assert_allclose(result[0], _layer(x[0].astype(np.float64), weights, SMALL), atol=2e-5)


@pytest.mark.parametrize("layers", [1, 3])
def test_weights_grow_with_depth_and_differ(layers: int) -> None:
    model = encoder_model(layers, SMALL)
    matrices = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith("_w")]
    assert len(matrices) == 6 * layers
    assert sum(m.size for m in matrices) == layers * (4 * 12 * 12 + 2 * 12 * 20)
    assert len({m.tobytes() for m in matrices}) == len(matrices)


def test_the_default_sizes_are_those_of_the_report() -> None:
    assert Encoder() == Encoder(749, 768, 12, 3072)


def test_figures_of_a_small_encoder() -> None:
    figures = measure(1, "bf16", SMALL)
    assert figures["layers"] == 1 and figures["cycles"] >= figures["lower_bound_cycles"]["total"] > 0
    assert figures["compile_seconds"] > 0


def test_rows_show_seconds_a_layer_and_the_slope() -> None:
    stages = {"schedule": 2.0, "generate": 1.0, "verify": 0.5, "import": 0.1}
    results = [
        {"layers": n, "cycles": 10, "efficiency": 0.5, "compile_seconds": s, "stages": stages}
        for n, s in ((1, 3.0), (4, 9.0))
    ]
    table = rows(results)
    assert [line[4] for line in table] == ["3.00", "2.25"]
    assert [line[5] for line in table] == ["3.00", "2.00"]
    assert table[0][6] == "schedule 2.0, generate 1.0, verify 0.5"
