"""--precision mixed on the command line: targets, plan files, exit codes, refusals."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import torq_byoc
from benchmarks.accuracy.sets import dead_channels, outlier_block
from tests.cli.tools import torq
from tests.quantize.planning.models import residual_mismatch


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    model, data = residual_mismatch()
    onnx.save(model, folder / "m.onnx")
    np.savez(folder / "calib.npz", **data)
    return folder


def compile_mixed(capsys, files, out, *arguments):
    request = ("compile", files / "m.onnx", "--calib", files / "calib.npz", "--precision", "mixed", "-o", out)
    return torq(capsys, *request, *arguments)


def test_the_plan_of_a_target_can_be_edited_and_fed_back(capsys, files, tmp_path):
    plan = tmp_path / "plan.json"
    first = compile_mixed(
        capsys, files, tmp_path / "a.torq", "--target-sqnr", 38, "--save-precision-plan", plan, "--json"
    )
    assert first.code == 0 and first.json["precision"] == "mixed"
    facts = first.json["plan"]
    assert facts["met"] and facts["reached"]["sqnr"] >= 38 > facts["int8"]["sqnr"]
    assert facts["target"] == {"sqnr": 38.0, "cosine": None, "metric": None}
    stored = json.loads(plan.read_text())
    assert sorted(stored["tensors"]) == sorted(facts["int16_tensors"] + facts["other_ranges"])
    same = compile_mixed(capsys, files, tmp_path / "b.torq", "--precision-plan", plan)
    assert same.code == 0 and (tmp_path / "a.torq").read_bytes() == (tmp_path / "b.torq").read_bytes()
    assert stored["room"] == facts["room"] > 1
    stored |= {"tensors": {}, "room": 1.0}
    plan.write_text(json.dumps(stored))
    plain = compile_mixed(capsys, files, tmp_path / "c.torq", "--precision-plan", plan, "--json").json["plan"]
    assert plain["int16_tensors"] == [] and plain["reached"] == plain["int8"]


@pytest.mark.parametrize("target", [("--target-sqnr", 38), ("--target-cos", 0.99999)])
def test_a_quantized_file_compiles_to_the_program_of_its_plan(capsys, files, tmp_path, target):
    plan, qdq = tmp_path / "plan.json", tmp_path / "q.onnx"
    direct = compile_mixed(capsys, files, tmp_path / "a.torq", *target, "--json")
    request = ("quantize", files / "m.onnx", "--calib", files / "calib.npz", "--precision", "mixed", "-o", qdq)
    result = torq(capsys, *request, *target, "--save-precision-plan", plan, "--json")
    assert result.code == direct.code == 0 and result.json["plan"] == direct.json["plan"]
    model = onnx.load(qdq)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 21
    codes = {tensor.data_type for tensor in model.graph.initializer if tensor.name.endswith("zero_point")}
    assert onnx.TensorProto.INT16 in codes
    torq(capsys, "compile", qdq, "--precision", "mixed", "-o", tmp_path / "b.torq")
    assert programs(tmp_path / "a.torq") == programs(tmp_path / "b.torq")
    first = qdq.read_bytes()
    again = torq(capsys, *request, "--precision-plan", plan)
    assert again.code == 0 and qdq.read_bytes() == first


def programs(container):
    return [part.blob for part in torq_byoc.load(container).partitions]


def test_operators_in_bf16_stay_float_in_the_quantized_file(capsys, files, tmp_path):
    (tmp_path / "plan.json").write_text('{"version": 1, "nodes": {"c": "bf16"}, "tensors": {"x": {"dtype": "int16"}}}')
    given = ("--calib", files / "calib.npz", "--precision", "mixed", "--precision-plan", tmp_path / "plan.json")
    written = torq(capsys, "quantize", files / "m.onnx", *given, "-o", tmp_path / "q.onnx")
    assert written.code == 0, written.err
    node = next(node for node in onnx.load(tmp_path / "q.onnx").graph.node if node.name == "c")
    assert node.input[1] == "w2", "the float weights themselves"
    torq(capsys, "compile", files / "m.onnx", *given, "-o", tmp_path / "a.torq")
    torq(capsys, "compile", tmp_path / "q.onnx", "--precision", "mixed", "-o", tmp_path / "b.torq")
    assert programs(tmp_path / "a.torq") == programs(tmp_path / "b.torq")


def test_a_missed_target_of_a_quantized_file_exits_with_1(capsys, files, tmp_path):
    request = ("quantize", files / "m.onnx", "--calib", files / "calib.npz", "-o", tmp_path / "q.onnx")
    result = torq(capsys, *request, "--precision", "mixed", "--target-sqnr", 150)
    assert result.code == 1 and "the target is missed" in result.out and (tmp_path / "q.onnx").exists()
    refused = torq(capsys, *request, "--hw", "sl2610", "--json")
    assert refused.code == 2 and refused.json["what"] == "options without effect: --hw"


def check_mixed(capsys, files, *arguments):
    data = ("--data", files / "calib.npz", "--calib", files / "calib.npz", "--layer-samples", 1)
    return torq(capsys, "check", files / "m.onnx", *data, "--precision", "mixed", *arguments, "--json")


def test_a_target_that_is_reached_passes_the_check(capsys, files):
    result = check_mixed(capsys, files, "--target-sqnr", 38)
    assert result.code == 0 and result.json["misses"] == []
    assert min(output["sqnr"] for output in result.json["outputs"]) >= 38


@pytest.mark.parametrize(
    ("target", "what", "wanted"), [("--target-sqnr", "sqnr", 150), ("--target-cos", "cosine", 0.9999999)]
)
def test_a_missed_target_is_a_missed_threshold_of_the_check(capsys, files, target, what, wanted):
    result = check_mixed(capsys, files, target, wanted)
    assert result.code == 1 and not result.json["passed"]
    (output,) = result.json["outputs"]
    misses = {miss["where"]: miss for miss in result.json["misses"]}
    assert set(misses) == {"y", "the plan on the calibration data"}
    assert {(miss["section"], miss["what"], miss["limit"]) for miss in misses.values()} == {("target", what, wanted)}
    assert misses["y"]["value"] == output[what] < wanted
    assert f"the target is {wanted:.6g}" in misses["y"]["sentence"]


def test_a_target_of_a_container_is_judged_on_the_data(capsys, files, tmp_path):
    assert compile_mixed(capsys, files, tmp_path / "a.torq", "--target-sqnr", 38).code == 0
    data = ("--data", files / "calib.npz", "--calib", files / "calib.npz", "--layer-samples", 1, "--json")
    result = torq(capsys, "check", files / "m.onnx", tmp_path / "a.torq", *data, "--target-sqnr", 38)
    assert result.code == 0, result.out


def test_rewrites_of_a_plan_can_be_disabled(capsys, tmp_path):
    stress = outlier_block(0)
    onnx.save(stress.model, tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", **stress.data(16, 1))
    plan = tmp_path / "p.json"
    request = ("quantize", tmp_path / "m.onnx", "--calib", tmp_path / "c.npz", "--precision", "mixed", "--json")
    request = (*request, "-o", tmp_path / "q.onnx", "--target-sqnr", 30)
    facts = torq(capsys, *request, "--save-precision-plan", plan).json["plan"]
    assert [rewrite["name"] for rewrite in facts["rewrites"]] == ["equalize_channels"] and facts["met"]
    disabled = torq(capsys, *request, "--precision-plan", plan, "--disable-rewrite", "equalize_channels")
    assert disabled.code == 1 and disabled.json["plan"]["rewrites"] == []


def test_a_tensor_that_a_rewrite_makes_goes_with_it(capsys, tmp_path):
    stress = dead_channels(0)
    onnx.save(stress.model, tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", **stress.data(8, 1))
    rewrite = {"name": "scale_outputs", "places": ["Conv_t0"]}
    plan = {"version": 1, "rewrites": [rewrite], "tensors": {"y_alike": {"dtype": "int16"}, "x": {"dtype": "int16"}}}
    request = ("quantize", tmp_path / "m.onnx", "--calib", tmp_path / "c.npz", "--precision", "mixed", "--json")
    request = (*request, "-o", tmp_path / "q.onnx", "--precision-plan", tmp_path / "p.json")

    def quantized(plan, *arguments):
        (tmp_path / "p.json").write_text(json.dumps(plan))
        return torq(capsys, *request, *arguments)

    assert quantized(plan).json["plan"]["int16_tensors"] == ["x", "y_alike"]
    disabled = quantized(plan, "--disable-rewrite", "scale_outputs", "--save-precision-plan", tmp_path / "s.json").json
    assert disabled["plan"]["int16_tensors"] == ["x"] and disabled["plan"]["rewrites"] == []
    assert "the plan's entries for y_alike have no effect: rewrites that make them are disabled" in disabled["notes"]
    assert list(json.loads((tmp_path / "s.json").read_text())["tensors"]) == ["x"]
    refused = quantized({**plan, "rewrites": []})
    assert refused.code == 2 and refused.json["where"].endswith("y_alike") and "name 'y'" in refused.json["try"]
    misspelt = quantized({**plan, "tensors": {"z": {"dtype": "int16"}}}, "--disable-rewrite", "scale_outputs")
    assert misspelt.code == 2 and "z" in misspelt.json["what"]


def test_a_metric_of_the_user_is_planned_for(capsys, files, tmp_path):
    metric = tmp_path / "metric.py"
    metric.write_text(
        "import numpy as np\n\ndef nearness(wanted, found):\n"
        "    return -float(np.abs(wanted['y'] - found['y']).max() / np.abs(wanted['y']).max())\n"
    )
    target = ("--metric", f"{metric}:nearness", "--target-metric", "-0.01")
    facts = compile_mixed(capsys, files, tmp_path / "o.torq", *target, "--json").json["plan"]
    assert facts["met"] and facts["reached"]["metric"] >= -0.01 > facts["int8"]["metric"]
    alone = compile_mixed(capsys, files, tmp_path / "o.torq", "--metric", f"{metric}:nearness")
    assert alone.code == 2 and "go together" in alone.err


def test_a_plan_is_tuned_as_it_is_compiled(capsys, files, tmp_path):
    plan, records = tmp_path / "plan.json", tmp_path / "records.json"
    assert (
        compile_mixed(capsys, files, tmp_path / "a.torq", "--target-sqnr", 38, "--save-precision-plan", plan).code == 0
    )
    request = ("tune", files / "m.onnx", "--calib", files / "calib.npz", "--records", records, "--trials", 2, "--json")
    request = (*request, "--precision", "mixed", "--precision-plan", plan)
    tuned = torq(capsys, *request)
    assert tuned.code == 0 and tuned.json["plan"]["int16_tensors"]
    assert any(note.startswith("mixed precision: ") for note in tuned.json["notes"])
    notes = compile_mixed(
        capsys, files, tmp_path / "b.torq", "--precision-plan", plan, "--records", records, "--json"
    ).json["notes"]
    assert any("decided by a tuning record of m.onnx" in note for note in notes)
    missed = torq(capsys, *request, "--target-sqnr", 150)
    assert missed.code == 1 and not missed.json["plan"]["met"] and "the target is missed" in missed.json["warnings"][0]


def test_a_method_beside_a_plan_is_noted(capsys, files, tmp_path):
    (tmp_path / "plan.json").write_text('{"version": 1}')
    request = ("quantize", files / "m.onnx", "--calib", files / "calib.npz", "-o", tmp_path / "q.onnx", "--json")
    request = (*request, "--precision", "mixed", "--precision-plan", tmp_path / "plan.json")
    notes = torq(capsys, *request, "--calibration-method", "mse").json["notes"]
    assert "the precision plan names the ranges' methods: the method mse has no effect" in notes


def test_a_plan_without_data_is_refused_even_if_weights_are_codes(capsys, tmp_path):
    onnx.save(weight_codes(), tmp_path / "m.onnx")
    request = ("compile", tmp_path / "m.onnx", "--precision", "mixed", "-o", tmp_path / "o.torq", "--json")
    assert torq(capsys, *request).code == 0
    refused = torq(capsys, *request, "--target-sqnr", 40)
    assert refused.code == 2 and refused.json["what"] == "mixed needs calibration data"


def weight_codes():
    """A dense layer whose weights alone are quantized."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,3] y)
        <float s = {0.1}> { w = DequantizeLinear(c, s) y = MatMul(x, w) }"""
    )
    codes = np.arange(12, dtype=np.int8).reshape(4, 3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(codes, "c"))
    return model


def test_a_missed_target_exits_with_1_and_writes_the_best_container(capsys, files, tmp_path):
    result = compile_mixed(capsys, files, tmp_path / "o.torq", "--target-sqnr", 150, "--json")
    assert result.code == 1 and not result.json["plan"]["met"] and (tmp_path / "o.torq").exists()
    assert any("the target is missed" in warning for warning in result.json["warnings"])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--precision-plan", "{plan}"), "names tensors that the model does not quantize: xx"),
        (("--precision-plan", "{missing}"), "the precision plan cannot be read"),
        (("--target-cos", "1.2"), "no quantized model reaches a cosine of 1.2"),
        (("--target-sqnr", "nan"), "no quantized model reaches a SQNR of nan"),
    ],
)
def test_what_is_wrong_with_a_request(capsys, files, tmp_path, arguments, what):
    (tmp_path / "plan.json").write_text('{"version": 1, "tensors": {"xx": {"dtype": "int16"}}}')
    paths = {"plan": str(tmp_path / "plan.json"), "missing": str(tmp_path / "none.json")}
    result = compile_mixed(capsys, files, tmp_path / "o.torq", *(text.format(**paths) for text in arguments))
    assert result.code == 2 and what in result.err and not (tmp_path / "o.torq").exists()


@pytest.mark.parametrize("command", ["compile", "quantize"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--target-sqnr", "40"),
        ("--target-cos", "0.99"),
        ("--precision-plan", "p.json"),
        ("--save-precision-plan", "p.json"),
    ],
)
def test_options_of_mixed_precision_need_it(capsys, files, tmp_path, arguments, command):
    request = (command, files / "m.onnx", "--calib", files / "calib.npz", "-o", tmp_path / "o.torq")
    result = torq(capsys, *request, *arguments, "--json")
    assert result.code == 2 and arguments[0] in result.json["what"] and "--precision mixed" in result.json["try"]


def test_a_float_model_needs_data(capsys, files, tmp_path):
    result = torq(capsys, "compile", files / "m.onnx", "--precision", "mixed", "-o", tmp_path / "o.torq", "--json")
    assert result.code == 2 and result.json["what"] == "mixed needs calibration data"
