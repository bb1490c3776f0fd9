"""``torq check``: verdict and exit code, JSON, report, containers, and everything that is refused."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.accuracy.models import chain, data, detector
from tests.accuracy.quantized_models import damaged, quantized
from tests.cli.refusals import assert_refused, files_in, npz, written
from tests.cli.tools import INPUT, SHAPE, Workspace, conv_model, samples, torq
from torq_byoc.quantize.rewrites import REWRITES

DIGITS = Path(__file__).parents[2] / "torq_byoc" / "data"


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """Eight samples of the workspace's model, with labels."""
    np.savez(tmp_path / "evaluation.npz", **{INPUT: samples(8, seed=5)}, labels=np.zeros(8, np.int64))
    return tmp_path / "evaluation.npz"


def _int8(workspace: Workspace, evaluation: Path) -> tuple:
    return ("check", workspace.model, "--data", evaluation, "--calib", workspace.calibration)


def test_the_digits_demo_loses_less_than_a_third_of_a_point(capsys):
    arguments = ("--data", DIGITS / "digits_test.npz", "--calib", DIGITS / "digits_calibration.npz")
    result = torq(capsys, "check", DIGITS / "digits.onnx", "--shape", "image:1x1x8x8", *arguments, "--json")
    assert result.code == 0
    labels = result.json["labels"]
    assert labels["rows"] == 540 and labels["top1_loss"] <= 0.003
    assert result.json["passed"] and result.json["misses"] == []


def test_text_begins_with_the_verdict(workspace, evaluation, capsys):
    result = torq(capsys, *_int8(workspace, evaluation))
    assert result.code == 0
    first, second, third = result.out.splitlines()[:3]
    assert first.startswith("may be shipped: tiny.onnx (int8), 8 samples against onnxruntime")
    assert second.startswith("weakest layer: ") and third.startswith("top-1: float ")
    for name in ("relu", "pool", "mean", "dense"):
        assert name in result.out


def test_bisect_cuts_the_layer_out_that_is_wrong_and_its_command_shows_that(tmp_path, capsys, monkeypatch):
    onnx.save(detector(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **data(2, seed=9))
    np.savez(tmp_path / "c.npz", **data(8, seed=1))
    arguments = ("--data", tmp_path / "d.npz", "--calib", tmp_path / "c.npz", "--bisect", tmp_path / "cut", "--json")
    plain = [word for rewrite in REWRITES for word in ("--disable-rewrite", rewrite.name)]
    result = torq(capsys, "check", tmp_path / "m.onnx", *plain, *arguments)
    cut = result.json["cut"]
    assert result.code == 1 and cut["fails_alike"] and len(cut["nodes"]) <= 3
    monkeypatch.chdir(tmp_path / "cut")
    again = torq(capsys, *cut["command"].split()[1:], "--json")
    assert again.code == 1
    assert any(one["local"] and one["stage"] == "quantization" for one in again.json["deviations"])


def test_bisect_of_a_right_model_writes_nothing(workspace, evaluation, tmp_path, capsys):
    result = torq(capsys, *_int8(workspace, evaluation), "--bisect", tmp_path / "cut")
    assert result.code == 0
    assert "none is cut out" in result.out
    assert not (tmp_path / "cut").exists()


def test_a_miss_names_cause_proof_and_cure(tmp_path, capsys):
    onnx.save(detector(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **data(5, seed=9))
    np.savez(tmp_path / "c.npz", **data(8, seed=1))
    cured = ("check", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--calib", tmp_path / "c.npz")
    assert torq(capsys, *cured, "--json").code == 0
    arguments = (*cured, "--disable-rewrite", "concat_in_float")
    result = torq(capsys, *arguments)
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[0].startswith("may NOT be shipped: m.onnx (int8)")
    assert "missed: y/cls is one constant on the NPU, and none in float" in lines
    assert any(line.startswith("cause: concat (quantization): operand cls has 0.0 dB") for line in lines)
    assert any(line.startswith("proof: with this layer in float, y/cls would have") for line in lines)
    assert any(line.startswith("try: split the concatenation concat") for line in lines)
    found = torq(capsys, *arguments, "--json")
    assert found.code == 1 and not found.json["passed"]
    assert found.json["cause"]["node"] == "concat"
    (concat,) = (layer for layer in found.json["layers"] if layer["op"] == "Concat")
    assert [(part["name"], len(part["dead_channels"])) for part in concat["operands"]] == [("box", 0), ("cls", 5)]


def test_bf16_needs_no_calibration(workspace, evaluation, capsys):
    result = torq(capsys, "check", workspace.model, "--data", evaluation, "--json")
    assert result.code == 0 and result.json["precision"] == "bf16"
    assert all(layer["quantization"] is None for layer in result.json["layers"])


def test_thresholds_decide(workspace, evaluation, tmp_path, capsys):
    strict = written(tmp_path / "t.yaml", b"outputs: {min_sqnr: 90}\nlayers: {names: {pool: {min_sqnr: 90}}}")
    result = torq(capsys, *_int8(workspace, evaluation), "--thresholds", strict, "--json")
    assert result.code == 1
    assert [(miss["section"], miss["what"], miss["limit"]) for miss in result.json["misses"]] == [
        ("outputs", "min_sqnr", 90.0),
        ("layers", "min_sqnr", 90.0),
    ]


def test_metric(workspace, evaluation, tmp_path, capsys):
    hook = written(tmp_path / "m.py", b"def error(a, b):\n    return {'worst': abs(a['y'] - b['y']).max()}\n")
    limits = written(tmp_path / "t.yaml", b"metric: {worst: {max: 1e-9}}")
    result = torq(capsys, *_int8(workspace, evaluation), "--metric", f"{hook}:error", "--thresholds", limits, "--json")
    assert result.code == 1
    (output,) = result.json["outputs"]
    assert result.json["metric"]["worst"] == pytest.approx(output["max_error"], rel=1e-6)
    assert [miss["section"] for miss in result.json["misses"]] == ["metric"]


def test_a_container_is_checked_as_it_is(workspace, evaluation, capsys):
    container = torq(
        capsys, *_int8(workspace, evaluation)[:2], workspace.int8, *_int8(workspace, evaluation)[2:], "--json"
    )
    fresh = torq(capsys, *_int8(workspace, evaluation), "--json")
    assert container.code == 0
    assert container.json["outputs"] == fresh.json["outputs"]
    assert container.json["layers"] == fresh.json["layers"]


def test_a_bf16_container_needs_no_calibration(workspace, evaluation, capsys):
    result = torq(capsys, "check", workspace.model, workspace.bf16, "--data", evaluation, "--json")
    assert result.code == 0 and result.json["precision"] == "bf16"


def test_a_container_of_other_calibration_data_is_refused(workspace, evaluation, tmp_path, capsys):
    other = npz(tmp_path, **{INPUT: samples(4, seed=77)})
    assert_refused(
        capsys, "AccuracyError", "check", workspace.model, workspace.int8, "--data", evaluation, "--calib", other
    )


def test_the_report_is_a_page_without_anything_from_elsewhere(workspace, evaluation, tmp_path, capsys):
    page = tmp_path / "r.html"
    result = torq(capsys, *_int8(workspace, evaluation), "--report", page)
    assert result.code == 0 and f"wrote {page}" in result.out
    text = page.read_text()
    tree = ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))
    assert "http:" not in text.replace("http://www.w3.org/", "") and "https:" not in text
    name = "{http://www.w3.org/1999/xhtml}"
    rows = tree.findall(f".//{name}table[@id='layer-table']/{name}tbody/{name}tr")
    found = torq(capsys, *_int8(workspace, evaluation), "--json").json
    assert len(rows) == len(found["layers"])
    assert "May be shipped." in text


def test_a_model_with_scales_is_held_against_itself_and_the_answer_says_so(tmp_path, capsys):
    onnx.save(quantized(), tmp_path / "q.onnx")
    np.savez(tmp_path / "d.npz", **data(3, seed=9))
    page = tmp_path / "r.html"
    arguments = ("check", tmp_path / "q.onnx", "--data", tmp_path / "d.npz")
    result = torq(capsys, *arguments, "--report", page)
    lines = result.out.splitlines()
    assert result.code == 0
    assert lines[0].startswith(
        "may be shipped: q.onnx (quantized), 3 samples against the same model in real arithmetic"
    )
    assert lines[1].startswith("proven: on this data") and lines[2].startswith("not proven: that its scales")
    assert "--float-model" in page.read_text() and "Not proven: that its scales" in page.read_text()
    found = torq(capsys, *arguments, "--json").json
    assert found["against"] == "the same model in real arithmetic" and "--float-model" in found["not_proven"]


@pytest.mark.parametrize(
    ("tensor", "layer", "reader"),
    [("w2_scale", "conv2", "conv2"), ("x_scale", "x", "conv1"), ("y_scale", "dense", "dense")],
)
def test_scales_that_are_damaged_are_cut_out_with_their_part_of_the_float_model(
    tensor, layer, reader, tmp_path, capsys, monkeypatch
):
    onnx.save(damaged(quantized(), tensor, lambda v: v / 4), tmp_path / "q.onnx")
    onnx.save(chain(), tmp_path / "f.onnx")
    np.savez(tmp_path / "d.npz", **data(3, seed=9))
    arguments = ("check", tmp_path / "q.onnx", "--data", tmp_path / "d.npz", "--float-model", tmp_path / "f.onnx")
    cut = torq(capsys, *arguments, "--bisect", tmp_path / "cut", "--json").json["cut"]
    assert cut["fails_alike"] and cut["nodes"] == [reader]
    monkeypatch.chdir(tmp_path / "cut")
    again = torq(capsys, *cut["command"].split()[1:], "--json")
    assert again.code == 1 and again.json["against"] == "the float model that it was made from"
    assert next(one["node"] for one in again.json["deviations"] if one["local"]) == layer
    float_part = onnx.load("float.onnx").graph
    assert sum(node.op_type in ("Conv", "MatMul", "Gemm") for node in float_part.node) == 1


def test_what_cannot_be_cut_out_ends_no_check(tmp_path, capsys, monkeypatch):
    """A float model that has no part like the layer, as when its names were changed all around it."""
    monkeypatch.setattr("torq_byoc.accuracy.cutter.float_part.FloatSide.part", lambda side, window: None)
    onnx.save(damaged(quantized(), "w2_scale", lambda v: v / 4), tmp_path / "q.onnx")
    onnx.save(chain(), tmp_path / "f.onnx")
    np.savez(tmp_path / "d.npz", **data(3, seed=9))
    arguments = ("check", tmp_path / "q.onnx", "--data", tmp_path / "d.npz", "--float-model", tmp_path / "f.onnx")
    given = (*arguments, "--bisect", tmp_path / "cut")
    result = torq(capsys, *given)
    assert result.code == 1 and not (tmp_path / "cut").exists()
    why = "none is cut out: the layer cannot be cut out (conv2: the float model has no such part)"
    assert result.out.splitlines()[-1] == why
    found = torq(capsys, *given, "--json").json
    assert found["cut"] is None and found["not_cut"] in why and found["cause"]["node"] == "conv2"


def test_the_float_model_shows_damage(tmp_path, capsys):
    onnx.save(damaged(quantized(), "w2_scale", lambda v: 3 * v), tmp_path / "q.onnx")
    onnx.save(chain(), tmp_path / "f.onnx")
    np.savez(tmp_path / "d.npz", **data(3, seed=9))
    arguments = ("check", tmp_path / "q.onnx", "--data", tmp_path / "d.npz", "--float-model", tmp_path / "f.onnx")
    result = torq(capsys, *arguments)
    assert result.code == 1
    lines = result.out.splitlines()
    assert "3 samples against the float model that it was made from (onnxruntime" in lines[0]
    assert any(line.startswith("cause: conv2 (quantization): Conv alone has") for line in lines)
    found = torq(capsys, *arguments, "--json").json
    assert [layer["float_name"] for layer in found["layers"]] == ["x", "r1", "r2", "g", "f", "y"]
    assert found["not_proven"] == "" and found["cause"]["node"] == "conv2"


def _nan(values: np.ndarray) -> np.ndarray:
    values[3, 0, 0, 0] = np.nan
    return values


def _saved(folder: Path, **arrays: np.ndarray) -> Path:
    return npz(folder, **arrays)


DATA = {
    "missing": ("CalibrationError", lambda f: f / "none.npz"),
    "no npz": ("CalibrationError", lambda f: written(f / "d.npz", b"text")),
    "wrong name": ("CalibrationError", lambda f: _saved(f, image=samples())),
    "wrong shape": ("CalibrationError", lambda f: _saved(f, **{INPUT: samples()[:, :2]})),
    "wrong type": ("CalibrationError", lambda f: _saved(f, **{INPUT: samples().astype(np.int8)})),
    "no samples": ("CalibrationError", lambda f: _saved(f, **{INPUT: samples()[:0]})),
    "NaN": ("CalibrationError", lambda f: _saved(f, **{INPUT: _nan(samples())})),
    "too few labels": ("AccuracyError", lambda f: _saved(f, **{INPUT: samples(4)}, labels=np.zeros(3, int))),
    "labels that are no integers": ("AccuracyError", lambda f: _saved(f, **{INPUT: samples(4)}, labels=np.zeros(4))),
    "labels beyond the classes": ("AccuracyError", lambda f: _saved(f, **{INPUT: samples(4)}, labels=np.full(4, 5))),
    "negative labels": ("AccuracyError", lambda f: _saved(f, **{INPUT: samples(4)}, labels=np.full(4, -1))),
}


@pytest.mark.parametrize("case", DATA)
def test_bad_data(case, workspace, tmp_path, capsys):
    error, make = DATA[case]
    evaluation = make(tmp_path)
    before = files_in(tmp_path)
    message = assert_refused(
        capsys, error, "check", workspace.model, "--data", evaluation, "--report", tmp_path / "r.html"
    )
    assert "calibration array" not in f"{message['what']} {message['try']}"
    assert files_in(tmp_path) == before


def _another_model(folder: Path) -> Path:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in (INPUT, "z")]
    graph = helper.make_graph([helper.make_node("Relu", [INPUT], ["z"], "relu")], "other", values[:1], values[1:])
    path = folder / "other.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _other_size(folder: Path) -> Path:
    onnx.save(conv_model(height=12), folder / "size.onnx")
    return folder / "size.onnx"


OPTIONS = {
    "thresholds with an unknown key": (
        "AccuracyError",
        lambda w, f: ("--thresholds", written(f / "t.yaml", b"output: 3")),
    ),
    "thresholds of an unknown output": (
        "AccuracyError",
        lambda w, f: ("--thresholds", written(f / "t.yaml", b"outputs: {names: {z: {min_sqnr: 1}}}")),
    ),
    "missing thresholds": ("AccuracyError", lambda w, f: ("--thresholds", f / "none.yaml")),
    "a metric of no form": ("AccuracyError", lambda w, f: ("--metric", "metric")),
    "a missing metric": ("AccuracyError", lambda w, f: ("--metric", f"{f}/none.py:f")),
    "no such function": ("AccuracyError", lambda w, f: ("--metric", f"{written(f / 'm.py', b'x = 1')}:f")),
    "a metric that does not compile": ("AccuracyError", lambda w, f: ("--metric", f"{written(f / 'm.py', b'def')}:f")),
    "a metric that fails": (
        "AccuracyError",
        lambda w, f: ("--metric", f"{written(f / 'm.py', b'def f(a, b): return 1 / 0')}:f"),
    ),
    "no layer samples": ("CommandLineError", lambda w, f: ("--layer-samples", "0")),
    "a report that is an input": ("CommandLineError", lambda w, f: ("--report", w.model)),
    "int8 without calibration": ("QuantizationError", lambda w, f: ("--precision", "int8")),
    "a float model beside a float model": ("AccuracyError", lambda w, f: ("--float-model", w.model)),
    "a missing float model": ("ModelFileError", lambda w, f: ("--float-model", f / "none.onnx")),
    "a container as a float model": ("ModelFileError", lambda w, f: ("--float-model", w.bf16)),
    "a report over the float model": (
        "CommandLineError",
        lambda w, f: ("--float-model", w.model, "--report", w.model),
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, workspace, evaluation, tmp_path, capsys):
    error, make = OPTIONS[case]
    arguments = make(workspace, tmp_path)
    before = files_in(tmp_path)
    assert_refused(capsys, error, "check", workspace.model, "--data", evaluation, *arguments)
    assert {path for path in files_in(tmp_path) if "__pycache__" not in path.parts} == before


CONTAINERS = {
    "of another model": ("AccuracyError", lambda w, f: (_another_model(f), w.bf16)),
    "of other input shapes": ("AccuracyError", lambda w, f: (_other_size(f), w.bf16)),
    "int8 without calibration": ("AccuracyError", lambda w, f: (w.model, w.int8)),
    "with a precision": ("CommandLineError", lambda w, f: (w.model, w.bf16, "--precision", "bf16")),
    "with a plan that it has not": (
        "AccuracyError",
        lambda w, f: (w.model, w.bf16, "--precision-plan", written(f / "p.json", b'{"version": 1}')),
    ),
    "with a target that it has not": ("AccuracyError", lambda w, f: (w.model, w.bf16, "--target-sqnr", "30")),
    "with a machine": ("CommandLineError", lambda w, f: (w.model, w.bf16, "--hw", "lram256")),
    "missing": ("ProgramFormatError", lambda w, f: (w.model, f / "none.torq")),
    "a model": ("ProgramFormatError", lambda w, f: (w.model, w.model)),
    "in place of the model": ("ModelFileError", lambda w, f: (w.bf16,)),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_bad_containers(case, workspace, evaluation, tmp_path, capsys):
    error, make = CONTAINERS[case]
    model, *rest = make(workspace, tmp_path)
    value = {"of other input shapes": np.zeros((2, 3, 12, SHAPE[3]), np.float32)}.get(case)
    source = npz(tmp_path, **{INPUT: value}) if value is not None else evaluation
    assert_refused(capsys, error, "check", model, *rest, "--data", source)
