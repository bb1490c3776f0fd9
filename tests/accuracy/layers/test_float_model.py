"""A model that carries its scales, held against the float model that it was made from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.accuracy.models import chain, data, detector, graph
from tests.accuracy.quantized_models import damaged, quantized, with_own
from torq_byoc import check_model
from torq_byoc.accuracy.check import CheckResult, check
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.float_model import with_float_model
from torq_byoc.accuracy.references.float_reference import ONNXRUNTIME
from torq_byoc.accuracy.stages import stages_of
from torq_byoc.compilation.options import Options
from torq_byoc.errors import AccuracyError, TorqError
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.evaluator import Evaluator

EVALUATION = data(3, seed=9)


def _checked(model: onnx.ModelProto, original: onnx.ModelProto | None = None) -> CheckResult:
    stages = with_float_model(stages_of(model, Options(effort=0), name="m"), original or chain())
    return check(stages, EVALUATION)


@pytest.mark.parametrize("form", ["QDQ", "QOperator", "ours"])
def test_outputs_are_held_against_the_float_model(form):
    model = stages_of(quantized(form), Options(effort=0), name="m")
    result = check(with_float_model(model, chain()), EVALUATION)
    assert result.passed and result.reference == ONNXRUNTIME
    assert result.scope.against == "the float model that it was made from" and not result.scope.not_proven
    evaluator = Evaluator(chain())
    feeds = [{"x": sample[None]} for sample in EVALUATION["x"]]
    wanted = np.stack([evaluator.outputs(feed)["y"] for feed in feeds])
    found = np.stack([model.compiled.run(feed)["y"] for feed in feeds])
    (row,) = result.outputs
    assert row.figures.sqnr == pytest.approx(sqnr(wanted, found), abs=1e-3)


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("QDQ", ["x", "r1", "r2", "g", "f", "y"]),
        ("QOperator", ["x", "r1", "r2", "g", "y"]),
        ("ours", ["x", "r1", "r2", "g", "f", "y"]),
    ],
)
def test_layers_are_found_in_the_float_model(form, names):
    """By name, through what quantizers add to it, and under the name of what their clip stands for."""
    result = _checked(quantized(form))
    assert [row.float_name for row in result.layers] == names
    assert all(row.local.sqnr > 20 for row in result.layers)


def _one_channel(scales: np.ndarray) -> np.ndarray:
    scales[4] *= 20
    return scales


DAMAGE = {
    "weight scales too large": ("conv2", lambda m: damaged(m, "w2_scale", lambda v: 3 * v)),
    "the scale of one channel": ("conv2", lambda m: damaged(m, "w2_scale", _one_channel)),
    "weights shuffled": ("conv2", lambda m: damaged(m, "w2_quantized", lambda v: v[::-1])),
    "a bias too large": ("conv1", lambda m: damaged(m, "b1_quantized", lambda v: 8 * v)),
    "a range too narrow": ("conv2", lambda m: damaged(m, "r2_scale", lambda v: v / 8)),
    "the scale of the output": ("dense", lambda m: damaged(m, "y_scale", lambda v: v / 4)),
    "an output read with another scale": ("dense", lambda m: with_own(m, "y_DequantizeLinear", 1, lambda v: 2 * v)),
    "an output read without zero point": ("dense", lambda m: with_own(m, "y_DequantizeLinear", 2, np.zeros_like)),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found_and_its_layer_named(case):
    layer, damage = DAMAGE[case]
    result = _checked(damage(quantized()))
    assert not result.passed and any(miss.section == "outputs" for miss in result.misses)
    assert (result.cause.stage, result.cause.node) == (Stage.QUANTIZATION, layer)
    assert "given its result too" in result.cause.proof
    first = next(deviation for deviation in result.deviations if deviation.local)
    assert first.node == layer


def test_the_proof_isolates_the_layer():
    """By hand: float values in front of the damaged layer, then its own as well, which only the last one is behind."""
    result = _checked(damaged(quantized(), "w2_scale", lambda v: 3 * v))
    before, after = (float(part.split(" dB")[0].rsplit(" ", 1)[1]) for part in result.cause.proof.split(";"))
    assert before == pytest.approx(result.outputs[0].figures.sqnr, abs=1) and after > 20


def test_a_scale_that_reads_of_codes_differs_by_shows_in_the_layer_that_reads_them():
    broken = with_own(quantized(), "r1_DequantizeLinear", 1, lambda v: 2 * v)
    result = _checked(broken)
    assert not result.passed and result.cause.node == "conv2"


def test_without_the_float_model_the_result_says_what_is_not_proven():
    broken = damaged(quantized(), "w2_scale", lambda v: 3 * v)
    result = check_model(broken, EVALUATION, effort=0)
    assert result.passed and result.scope.against == "the same model in real arithmetic"
    assert "--float-model" in result.scope.not_proven
    assert all(row.float_name is None for row in result.layers)


def test_names_that_mean_other_things_are_no_counterparts():
    """Channels scaled up in one layer and down in the next, as equalization does: right, under the old names."""
    model = quantized()
    damaged(model, "w1_scale", lambda v: 8 * v)
    damaged(model, "b1_quantized_scale", lambda v: 8 * v)
    damaged(model, "r1_scale", lambda v: 8 * v)
    damaged(model, "w2_scale", lambda v: v / 8)
    result = _checked(model)
    assert result.passed and not result.deviations
    assert [row.float_name for row in result.layers] == ["x", None, "r2", "g", "f", "y"]
    assert any(
        "1 of 6 layers are not to be found in the float model" in note and "conv1" in note for note in result.notes
    )


def test_the_api_takes_the_float_model(tmp_path):
    onnx.save(chain(), tmp_path / "f.onnx")
    broken = damaged(quantized(), "w2_scale", lambda v: 3 * v)
    by_path = check_model(broken, EVALUATION, float_model=tmp_path / "f.onnx", effort=0)
    assert not by_path.passed and by_path == check_model(broken, EVALUATION, float_model=chain(), effort=0)


def _other_input() -> onnx.ModelProto:
    model = chain()
    model.graph.input[0].name = model.graph.node[0].input[0] = "image"
    return model


def _other_type() -> onnx.ModelProto:
    model = chain()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    model.graph.node[0].input[0] = "real"
    model.graph.node.insert(0, helper.make_node("Cast", ["x"], ["real"], "cast", to=TensorProto.FLOAT))
    return model


def _other_output() -> onnx.ModelProto:
    model = chain()
    model.graph.output[0].name = model.graph.node[-1].output[0] = "scores"
    return model


def _other_shape() -> onnx.ModelProto:
    return graph([helper.make_node("Relu", ["x"], ["y"], "relu")], {}, shape=(1, 3, 8, 7))


UNFIT = {
    "another input": (_other_input, "inputs", "image (FLOAT)"),
    "another type": (_other_type, "inputs", "UINT8"),
    "another output": (_other_output, "outputs", "scores (FLOAT)"),
    "another shape": (_other_shape, "input shapes", "[1, 3, 8, 7]"),
    "a quantized one": (quantized, "is quantized", ""),
}


@pytest.mark.parametrize("case", UNFIT)
def test_float_models_that_do_not_fit(case):
    make, what, why = UNFIT[case]
    with pytest.raises(AccuracyError) as refusal:
        _checked(quantized(), make())
    assert what in refusal.value.what and why in refusal.value.why
    assert refusal.value.where == "--float-model" and refusal.value.remedy


def test_a_float_model_needs_no_other():
    model = stages_of(chain(), Options(precision="int8", calibration=data(8, seed=1), effort=0), name="m")
    with pytest.raises(AccuracyError) as refusal:
        with_float_model(model, chain())
    assert "--float-model" in refusal.value.remedy


def test_a_dynamic_batch_takes_the_quantized_models():
    original = chain()
    original.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert _checked(quantized(), original).passed


def test_what_is_wrong_with_the_float_model_is_said():
    broken = detector()
    broken.graph.node[0].input[1] = "none"
    with pytest.raises(TorqError):
        _checked(quantized(), broken)
