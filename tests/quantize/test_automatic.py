"""Rewrites are tried where something speaks for them, kept where they help, and said."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.accuracy import sets
from tests.end_to_end.harness import compile_and_compare
from tests.quantize.models import parsed
from torq_byoc.errors import QuantizationError
from torq_byoc.frontend import prepare
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize import judge, quantize_model, rewrite_search
from torq_byoc.quantize.automatic import NAMES, check_rewrite_names, quantize
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.judge import Judge


def ordinary() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two convolutions with nothing wrong about them."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((8, 3, 3, 3)),
        "v": np.eye(4, 8)[..., None, None],
        "b": np.zeros(4),
        "a": np.ones(8),
    }
    constants["w"] /= np.abs(constants["w"]).sum(axis=(1, 2, 3), keepdims=True)
    model = parsed("t = Conv(x, w, a) r = LeakyRelu(t) y = Conv(r, v, b)", "float[1,3,8,8] x", constants=constants)
    return model, {"x": rng.uniform(0.5, 1.0, (8, 3, 8, 8)).astype(np.float32)}


def test_an_ordinary_network_is_quantized_once() -> None:
    model, data = ordinary()
    calls: list[None] = []
    result = quantize(model, data, progress=lambda: calls.append(None))
    assert len(calls) == 8, "once over every sample"
    assert result.model.SerializeToString() == quantize_model(model, data).SerializeToString()
    assert result.exact is model
    assert result.rewrites == ()


@pytest.mark.parametrize(
    ("builder", "name", "node"),
    [
        (sets.detector_head, "concat_in_float", "Concat"),
        (sets.dead_channels, "scale_outputs", "Conv"),
        (sets.outlier_block, "equalize_channels", "LayerNormalization"),
        (sets.heavy_tail, "split_outliers", "Conv"),
    ],
)
def test_what_helps_is_kept_and_said(builder, name: str, node: str) -> None:  # noqa: ANN001
    stress = builder(0)
    model = prepare(stress.model)
    data, fresh = stress.data(16, 1), stress.data(4, 2)
    result = quantize(model, data)
    (applied,) = result.rewrites
    assert applied.name == name
    assert applied.after > applied.before + 1.0
    assert all(place.startswith(node) for place in applied.places)
    note = next(result.remarks())
    assert name in note and applied.places[0] in note
    judge = Judge(model, samples(model, fresh))
    assert judge.of(result.model).sqnr > judge.of(quantize_model(model, data)).sqnr + 1.0
    for feed in judge.feeds:
        wanted, found = (Evaluator(each).outputs(feed)["y"] for each in (model, result.exact))
        np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max())
    plain = quantize(model, data, disabled=[name])
    assert plain.rewrites == ()
    assert plain.model.SerializeToString() == quantize_model(model, data).SerializeToString()


@pytest.mark.parametrize("rows", [1, 32])
def test_dense_networks_are_equalized_whatever_the_rows_of_a_sample(rows: int) -> None:
    """With one row a sample, channels need more samples before they say anything."""
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(16) % 6 == 3, 60.0, 1.0)
    weights = {
        "w": rng.standard_normal((8, 16)) * 0.3 * sizes,
        "b": rng.standard_normal(16) * 0.1,
        "v": rng.standard_normal((16, 4)) / sizes[:, None],
        "c": np.zeros(4),
    }
    model = parsed("h = Gemm(x, w, b) r = Relu(h) y = Gemm(r, v, c)", f"float[{rows},8] x", constants=weights)
    data = {"x": rng.standard_normal((512, 8)).astype(np.float32)}
    found = quantize(model, data)
    assert "equalize_channels" in [each.name for each in found.rewrites]
    fresh = Judge(model, samples(model, {"x": rng.standard_normal((64, 8)).astype(np.float32)}))
    assert fresh.of(found.model).sqnr > fresh.of(quantize_model(model, data)).sqnr + 6


def test_bias_correction_can_be_disabled_as_well() -> None:
    model, data = ordinary()
    result = quantize(model, data, disabled=["bias_correction"])
    assert result.model.SerializeToString() == quantize_model(model, data, correct_biases=False).SerializeToString()
    assert result.model.SerializeToString() != quantize_model(model, data).SerializeToString()


def test_results_do_not_depend_on_the_run() -> None:
    stress = sets.detector_head(3)
    first, second = (quantize(prepare(stress.model), stress.data(8, 1)) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert first.rewrites == second.rewrites


@pytest.mark.parametrize(
    ("builder", "name", "gain"),
    [(sets.detector_head, "concat_in_float", 45.0), (sets.outlier_block, "equalize_channels", 15.0)],
)
def test_16_bits_are_rewritten_where_that_helps(builder, name: str, gain: float) -> None:  # noqa: ANN001
    stress = builder(0)
    model = prepare(stress.model)
    data, fresh = stress.data(8, 1), stress.data(2, 2)
    result = quantize(model, data, precision="int16")
    assert [applied.name for applied in result.rewrites] == [name]
    judge = Judge(model, samples(model, fresh))
    assert judge.of(result.model).sqnr > judge.of(quantize_model(model, data, precision="int16")).sqnr + gain
    compile_and_compare(result.model, judge.feeds[0], NpuConfig())
    plain = quantize(model, data, precision="int16", disabled=[name])
    assert plain.model.SerializeToString() == quantize_model(model, data, precision="int16").SerializeToString()


def test_what_is_good_enough_is_not_tried_to_be_bettered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough are fewer decibels here than 16 bits give it."""
    monkeypatch.setattr(rewrite_search, "ENOUGH_SQNR", 60.0)
    monkeypatch.setattr(judge, "ENOUGH_SQNR", 60.0)
    stress = sets.dead_channels(0)
    model, data = prepare(stress.model), stress.data(8, 1)
    calls: list[None] = []
    result = quantize(model, data, precision="int16", progress=lambda: calls.append(None))
    assert result.rewrites == ()
    assert len(calls) == 8 + 6, "over every sample, and over those that candidates would be made with"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    check_rewrite_names(NAMES)
    with pytest.raises(QuantizationError, match="there is no rewrite 'equalise'") as refusal:
        check_rewrite_names(["equalise"])
    assert "equalize_channels" in str(refusal.value)
