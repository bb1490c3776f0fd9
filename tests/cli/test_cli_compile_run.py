"""compile and run: files, figures, accuracy, options."""

from __future__ import annotations

import json
import math

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torq_byoc
from tests.cli.tools import INPUT, SHAPE, conv_model, mixed_model, samples, torq

REQUIRED = {
    "model", "hw", "precision", "profile", "cycles", "latency_us", "macs", "mac_utilisation", "dma",
    "lower_bound_cycles", "efficiency", "lram", "xram_bytes", "npu_ops", "cpu_ops", "npu_mac_fraction", "layers",
    "compile_seconds", "passes",
}  # fmt: skip


def test_compile_reports_every_field_of_the_contract(workspace, tmp_path, capsys):
    result = torq(
        capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", workspace.calibration, "--json"
    )
    data = result.json
    assert result.code == 0
    assert data.keys() >= REQUIRED
    assert data["model"] == "tiny.onnx" and data["precision"] == "int8" and data["hw"] == "sl2610"
    conv, dense = 6 * 10 * 9 * 27, 6 * 5
    assert data["macs"] == conv + dense and data["npu_mac_fraction"] == 1.0
    assert data["latency_us"] == pytest.approx(data["cycles"]["total"] / 800)
    assert data["dma"]["weights"] + data["dma"]["activations"] + data["dma"]["program"] == (
        data["dma"]["in_bytes"] + data["dma"]["out_bytes"]
    )
    assert 0 < data["efficiency"] <= 1
    assert 0 < data["lram"]["peak"] <= data["lram"]["capacity"] == 512 * 1024
    assert {row["node"].split("+")[0] for row in data["layers"]} >= {"conv", "pool", "dense"}


def test_lower_bound_counts_each_weight_input_and_output_once(workspace, tmp_path, capsys):
    data = torq(
        capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", workspace.calibration, "--json"
    ).json
    rate = 8 * 0.65 * 16 / 17.5
    stored = 6 * 27 + 6 * 5 + int(np.prod(SHAPE))
    macs_a_cycle = 4 * 64 * 2
    assert data["lower_bound_cycles"]["dma_in"] == math.ceil(stored / rate)
    assert data["lower_bound_cycles"]["dma_out"] == math.ceil(5 / rate) == 2
    assert data["lower_bound_cycles"]["compute"] == math.ceil(data["macs"] / macs_a_cycle)


@pytest.mark.parametrize(("precision", "tolerance"), [("int8", 0.05), ("int16", 0.01), ("bf16", 0.02)])
def test_results_follow_the_float_model(workspace, tmp_path, capsys, precision, tolerance):
    container, output = tmp_path / "o.torq", tmp_path / "o.npz"
    calibration = [] if precision == "bf16" else ["--calib", workspace.calibration]
    assert torq(capsys, "compile", workspace.model, "-o", container, "--precision", precision, *calibration).code == 0
    assert torq(capsys, "run", container, "--input", workspace.inputs, "--output", output).code == 0
    expected = ReferenceEvaluator(conv_model()).run(None, {INPUT: samples(1, seed=9)})[0]
    result = np.load(output)["y"]
    assert result.dtype == np.float32 and result.shape == expected.shape
    assert np.abs(result - expected).max() < tolerance * np.abs(expected).max()


def test_auto_precision_depends_on_calibration_data(workspace, capsys):
    assert torq(capsys, "inspect", workspace.int8, "--json").json["precision"] == "int8"
    assert torq(capsys, "inspect", workspace.bf16, "--json").json["precision"] == "bf16"


def test_default_output_is_named_after_the_model(workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert torq(capsys, "compile", workspace.model).code == 0
    assert (tmp_path / "tiny.torq").is_file()


def test_a_folder_of_samples_calibrates_like_one_file(workspace, tmp_path, capsys):
    folder = tmp_path / "calib"
    folder.mkdir()
    for index, sample in enumerate(samples()):
        np.savez(folder / f"{index}.npz", **{INPUT: sample[None]})
    torq(capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", folder)
    assert (tmp_path / "o.torq").read_bytes() == workspace.int8.read_bytes()


def test_shape_option_fixes_unknown_dimensions(tmp_path, capsys):
    onnx.save(conv_model(batch="n", height="h"), tmp_path / "m.onnx")
    shape = f"{INPUT}:2x3x6x9"
    result = torq(capsys, "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--shape", shape, "--json")
    assert result.json["inputs"] == [{"name": INPUT, "shape": [2, 3, 6, 9], "dtype": "float32"}]


def test_unknown_batch_is_one_and_said_so(tmp_path, capsys):
    onnx.save(conv_model(batch="n"), tmp_path / "m.onnx")
    result = torq(capsys, "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--json")
    assert result.json["inputs"][0]["shape"][0] == 1
    assert any("batch" in note for note in result.json["notes"])


def test_another_machine_changes_cycles_not_results(workspace, tmp_path, capsys):
    hardware = tmp_path / "one_slice.yaml"
    hardware.write_text("name: one-slice\nslices: 1\n")
    container, output = tmp_path / "o.torq", tmp_path / "o.npz"
    calibration = ["--calib", workspace.calibration]
    data = torq(capsys, "compile", workspace.model, "-o", container, *calibration, "--hw", hardware, "--json").json
    assert data["hw"] == "one-slice" and len(data["cycles"]["slices"]) == 1
    torq(capsys, "run", container, "--input", workspace.inputs, "--output", output)
    expected = torq_byoc.load(workspace.int8).run(dict(np.load(workspace.inputs)))["y"]
    np.testing.assert_array_equal(np.load(output)["y"], expected)


def test_profiles_are_ordered_and_named(workspace, tmp_path, capsys):
    totals = []
    for profile in ("reference", "shared", "pessimistic"):
        data = torq(
            capsys, "run", workspace.int8, "--input", workspace.inputs, "--output", tmp_path / "o.npz",
            "--profile", profile, "--json",
        ).json  # fmt: skip
        assert data["profile"] == profile
        totals.append(data["cycles"]["total"])
    assert totals == sorted(totals) and totals[0] < totals[2]


def test_every_level_is_dumped(workspace, tmp_path, capsys):
    folder = tmp_path / "ir"
    torq(capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--dump-ir", folder)
    names = [path.name for path in sorted(folder.iterdir())]
    assert any("tensor" in name for name in names) and any("torq_hl" in name for name in names)
    assert all((folder / name).read_text().strip() for name in names)


def test_explain_shows_layers_passes_and_decisions(workspace, tmp_path, capsys):
    result = torq(capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--explain")
    for expected in ("conv2d", "bound by", "pass dead-stores", '"tile"'):
        assert expected in result.out


def test_printed_decisions_can_be_fed_back(workspace, tmp_path, capsys):
    record = torq_byoc.load(workspace.int8).partitions[0].facts.decisions
    (tmp_path / "decisions.json").write_text(record)
    torq(
        capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", workspace.calibration,
        "--schedule", tmp_path / "decisions.json",
    )  # fmt: skip
    assert (tmp_path / "o.torq").read_bytes() == workspace.int8.read_bytes()


def test_a_disabled_pass_is_absent_from_the_ledger(workspace, tmp_path, capsys):
    data = torq(
        capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--disable-pass", "dead-stores", "--json"
    ).json
    assert "dead-stores" not in {entry["name"] for entry in data["passes"]}


def test_cpu_operators_are_listed_with_reasons_and_run(tmp_path, capsys):
    onnx.save(mixed_model(), tmp_path / "m.onnx")
    data = torq(capsys, "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--json").json
    assert [op["node"] for op in data["cpu_ops"]] == ["running_sum"] and data["cpu_ops"][0]["reason"]
    assert data["cycles"]["host_us"] is None, "unmeasured host time must not read as free"
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 4, 16)
    np.savez(tmp_path / "in.npz", **{INPUT: x})
    assert (
        torq(capsys, "run", tmp_path / "o.torq", "--input", tmp_path / "in.npz", "--output", tmp_path / "o.npz").code
        == 0
    )
    expected = np.cumsum(np.abs(x), axis=2) + np.abs(x)
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["y"], expected, rtol=0.02)


def test_outputs_of_any_name_can_be_written(tmp_path, capsys):
    model = conv_model()
    model.graph.node[-1].output[0] = model.graph.output[0].name = "file"
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **{INPUT: samples(1)})
    torq(capsys, "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq")
    result = torq(capsys, "run", tmp_path / "o.torq", "--input", tmp_path / "in.npz", "--output", tmp_path / "o.npz")
    assert result.code == 0, result.err
    assert np.load(tmp_path / "o.npz").files == ["file"]


def test_trace_is_written_beside_the_outputs(workspace, tmp_path, capsys):
    result = torq(
        capsys, "run", workspace.int8, "--input", workspace.inputs, "--output", tmp_path / "o.npz",
        "--trace", tmp_path / "t.json", "--json",
    )  # fmt: skip
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["otherData"]["cycles"] == result.json["cycles"]["total"]


def test_results_that_nothing_reads_do_not_matter(workspace, tmp_path, capsys):
    model = conv_model()
    model.graph.node[2].output.append("indices")
    onnx.save(model, tmp_path / "tiny.onnx")
    torq(capsys, "compile", tmp_path / "tiny.onnx", "-o", tmp_path / "o.torq", "--calib", workspace.calibration)
    assert (tmp_path / "o.torq").read_bytes() == workspace.int8.read_bytes()


def test_the_explanation_is_in_json_as_well(workspace, tmp_path, capsys):
    request = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--json")
    data = torq(capsys, *request, "--explain", "--save-schedule", tmp_path / "s.json").json
    (decisions,) = data["decisions"].values()
    assert decisions == json.loads((tmp_path / "s.json").read_text())
    assert "decisions" not in torq(capsys, *request).json
