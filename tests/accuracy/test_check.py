"""The whole check: verdict, cause, proof and cure."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.accuracy.models import chain, data, detector, graph, stages
from torq_byoc.accuracy import session
from torq_byoc.accuracy.causes.what_if import without_quantization
from torq_byoc.accuracy.check import check
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.layers import layers_of
from torq_byoc.accuracy.references.float_reference import EVALUATOR, ONNXRUNTIME
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.accuracy.verdict.thresholds import Thresholds, thresholds_of
from torq_byoc.compilation.options import Options
from torq_byoc.errors import AccuracyError, CalibrationError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.evaluator import Evaluator

EVALUATION = data(6, seed=9)


def _outputs(model: Stages) -> tuple[np.ndarray, np.ndarray]:
    """The first output of all samples, of the float model and of the NPU."""
    evaluator = Evaluator(model.prepared)
    feeds = [{"x": sample[None]} for sample in EVALUATION["x"]]
    name = model.prepared.graph.output[0].name
    return (
        np.stack([evaluator.outputs(feed)[name] for feed in feeds]),
        np.stack([model.compiled.run(feed)[name] for feed in feeds]),
    )


@pytest.mark.parametrize("precision", ["int8", "bf16", "int16"])
def test_a_sound_model_may_be_shipped(precision):
    model = stages("chain", precision)
    result = check(model, EVALUATION)
    assert result.passed and not result.deviations
    assert (result.samples, result.layer_samples, result.reference) == (6, 4, ONNXRUNTIME)
    (row,) = result.outputs
    assert row.figures.sqnr == pytest.approx(sqnr(*_outputs(model)), abs=1e-3)
    assert not row.lost and row.agreement == 1


def test_scores_that_are_all_zero_are_found_and_explained():
    """Over the whole output the boxes drown them."""
    model = stages("detector")
    wanted, found = _outputs(model)
    assert np.vdot(wanted, found) / np.linalg.norm(wanted) / np.linalg.norm(found) > 0.9999
    result = check(model, EVALUATION, calibration=data(8, seed=1))
    assert not result.passed
    boxes, scores = result.outputs
    assert (boxes.part, scores.part) == ("box", "cls")
    assert boxes.figures.cosine > 0.999 and not boxes.lost
    assert scores.figures.cosine == 0 and scores.lost and len(scores.dead) == 5
    assert {(miss.where, miss.what) for miss in result.misses} == {
        ("y/cls", name) for name in ("lost", "min_cosine", "min_sqnr")
    }
    assert (result.cause.stage, result.cause.node) == (Stage.QUANTIZATION, "concat")
    assert "y/cls would have" in result.cause.proof
    assert "split the concatenation" in result.cause.remedy and "16 bits" not in result.cause.remedy
    assert any(finding.rule == "concat-ranges" for finding in result.lint)


def test_a_detector_may_be_shipped_as_it_is_compiled_by_default():
    """The quantizer does by itself what the check would advise."""
    options = Options(precision="int8", calibration=data(8, seed=1), effort=0)
    result = check(stages_of(detector(), options, name="detector"), EVALUATION)
    assert result.passed and not result.deviations
    assert [row.part for row in result.outputs] == ["box", "cls"]
    assert all(row.figures.cosine > 0.999 and not row.lost for row in result.outputs)


def test_the_proof_says_what_the_layer_in_float_gains():
    """By hand: the scores before the concatenation, quantized by their own scale."""
    result = check(stages("detector"), EVALUATION, layer_samples=6)
    rows = {row.layer.tensor: row for row in result.layers}
    gain = float(result.cause.proof.split(" dB")[0].rsplit(" ", 1)[1])
    assert gain == pytest.approx(rows["cls"].overall.sqnr, abs=0.1)


def test_a_range_that_is_too_narrow_is_blamed_on_calibration():
    model = stages_of(
        chain(), Options(precision="int8", calibration={"x": data(8, seed=1)["x"] / 8}, effort=0), name="m"
    )
    result = check(model, EVALUATION)
    assert not result.passed
    assert (result.cause.stage, result.cause.node) == (Stage.GIVEN, "x")
    row = next(row for row in result.layers if row.layer.tensor == "x")
    assert f"{row.use.saturated:.2%} of the input x lie outside the range of the calibration" in result.cause.remedy


def test_a_program_that_differs_from_its_graph_is_a_defect():
    model = stages("chain")
    ((symbol, graph),) = model.graphs.items()
    broken: OpGraph = replace(
        graph,
        nodes=tuple(
            replace(node, rescale=replace(node.rescale, zero_point=node.rescale.zero_point + 1))
            if node.output == graph.outputs[0]
            else node
            for node in graph.nodes
        ),
    )
    result = check(replace(model, graphs={symbol: broken}), EVALUATION)
    assert not result.passed
    assert result.misses[0].section == "program"
    assert "report it" in result.cause.remedy


def test_labels():
    model = stages("chain")
    wanted, found = _outputs(model)
    labels = wanted.reshape(6, -1).argmax(axis=1)
    result = check(model, {**EVALUATION, "labels": labels})
    assert (result.labels.rows, result.labels.float_top1) == (6, 1.0)
    assert result.labels.npu_top1 == np.mean(found.reshape(6, -1).argmax(axis=1) == labels)


def test_lost_top1_is_a_miss():
    model = stages("chain")
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model.original)
    for tensor in wrong.graph.initializer:
        if tensor.name == "fc":
            tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), "fc"))
    labels = -_outputs(model)[0].reshape(6, -1)
    result = check(replace(model, original=wrong), {**EVALUATION, "labels": labels.argmax(axis=1)})
    assert any((miss.section, miss.what) == ("labels", "max_top1_loss") for miss in result.misses)


def test_metric_sees_all_samples_of_both():
    model = stages("chain")
    wanted, found = _outputs(model)
    seen = {}

    def metric(ours, theirs):
        seen.update(wanted=ours["y"], found=theirs["y"])
        return {"error": np.abs(ours["y"] - theirs["y"]).max(), "samples": len(ours["y"])}

    limits = thresholds_of({"metric": {"error": {"max": 1e-9}}})
    result = check(model, EVALUATION, metric=metric, thresholds=limits)
    np.testing.assert_allclose(seen["wanted"], wanted, atol=1e-5)
    np.testing.assert_array_equal(seen["found"], found)
    assert result.metric == {"error": pytest.approx(np.abs(wanted - found).max(), abs=1e-5), "samples": 6}
    assert [(miss.section, miss.where, miss.what) for miss in result.misses] == [("metric", "error", "max")]


@pytest.mark.parametrize(
    "metric", [lambda a, b: "good", lambda a, b: float("nan"), lambda a, b: a["z"], lambda a, b: {"v": None}]
)
def test_metrics_that_are_none(metric):
    with pytest.raises(AccuracyError):
        check(stages("chain"), EVALUATION, metric=metric)


def test_limits_of_layers():
    limits = thresholds_of({"layers": {"names": {"relu1": {"min_sqnr": 150}, "f": {"min_local_sqnr": 150}}}})
    result = check(stages("chain"), EVALUATION, thresholds=limits)
    assert [(miss.where, miss.what) for miss in result.misses] == [("r1", "min_sqnr"), ("f", "min_local_sqnr")]


def test_a_metric_in_the_thresholds_that_nobody_gives():
    with pytest.raises(AccuracyError):
        check(stages("chain"), EVALUATION, thresholds=thresholds_of({"metric": {"f1": {"min": 0.5}}}))


def test_data_that_does_not_fit():
    broken = EVALUATION["x"].copy()
    broken[3, 0, 0, 0] = np.nan
    for unfit in ({"z": EVALUATION["x"]}, {"x": EVALUATION["x"][:, :2]}, {"x": broken}):
        with pytest.raises(CalibrationError):
            check(stages("chain"), unfit)


def test_a_quantized_model_is_held_against_itself():
    precise = stages("chain").precise
    result = check(stages_of(precise, Options(effort=0), name="m"), EVALUATION)
    assert result.passed and result.precision == "quantized"
    assert result.outputs[0].figures.sqnr > 40
    assert all(row.overall.sqnr == 200 for row in result.layers if row.rounding and row.rounding.worst == 0)


def test_float_islands_run_in_bf16_and_are_checked_as_floats():
    """A quantized model in which one layer was left in float."""
    model = stages("chain")
    (layer,) = (layer for layer in layers_of(model) if layer.tensor == "r1")
    island = without_quantization(model.prepared, model.precise, [layer])
    result = check(stages_of(island, Options(precision="mixed", effort=0), name="m"), EVALUATION)
    assert result.passed and not result.deviations
    row = next(row for row in result.layers if row.layer.tensor == "r1")
    assert row.layer.codes is None and row.on_npu
    assert 40 < row.local.sqnr < 80  # bf16


def test_without_onnxruntime_the_report_says_who_computed(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = check(stages("chain"), EVALUATION)
    assert result.passed and result.reference == EVALUATOR
    assert any("import is not checked" in note for note in result.notes)


def test_byte_kernels_that_saturate_are_no_reference(monkeypatch):
    """An integer product on a CPU whose kernels are not exact."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "quantize"),
        helper.make_node("MatMulInteger", ["xq", "w", "z"], ["p"], "product"),
        helper.make_node("Cast", ["p"], ["f"], "cast", to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "k"], ["y"], "scale"),
    ]
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "w": np.random.default_rng(0).integers(-127, 128, (6, 5)).astype(np.int8),
        "k": np.float32(0.001),
    }
    model = stages_of(graph(nodes, constants), Options(effort=0), name="m")
    for exact, reference in ((True, ONNXRUNTIME), (False, EVALUATOR)):
        monkeypatch.setattr(session, "u8s8_is_exact", lambda exact=exact: exact)
        result = check(model, EVALUATION)
        assert result.reference == reference
        assert any("saturation" in note for note in result.notes) is not exact


def test_layers_are_looked_at_on_few_samples_spread_over_the_data():
    steps = []
    result = check(stages("chain"), EVALUATION, layer_samples=2, step=steps.append)
    assert result.layer_samples == 2
    assert result.layers[0].overall.elements == 2 * EVALUATION["x"][0].size
    assert steps[:2] == ["sample 1 of 6", "sample 2 of 6"]


def test_the_worst_of_the_samples_is_named():
    """The last of three is a hundredth of the others: to it the steps are coarse."""
    values = EVALUATION["x"][:3].copy()
    values[2] /= 100
    assert check(stages("chain"), {"x": values}).worst_sample == 2
    assert check(stages("chain"), {"x": values}, layer_samples=1).worst_sample == 0


def test_the_same_question_has_the_same_answer():
    assert check(stages("chain"), EVALUATION) == check(stages("chain"), EVALUATION)


def test_default_thresholds():
    assert check(stages("chain"), EVALUATION, thresholds=Thresholds()).misses == ()
