"""``torq quantize``: standard QDQ ONNX out, the same program in, onnxruntime within one code."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torq_byoc
from benchmarks.accuracy.sets import dead_channels
from tests.cli.refusals import assert_refused, files_in, npz
from tests.cli.tools import INPUT, conv_model, mixed_model, samples, torq
from tests.frontend.onnx_tools import run_reference


@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_writes_a_standard_model_that_compiles_to_the_same_program(workspace, tmp_path, capsys, precision):
    output = tmp_path / "m.qdq.onnx"
    arguments = ("quantize", workspace.model, "-o", output, "--calib", workspace.calibration, "--precision", precision)
    result = torq(capsys, *arguments, "--json")
    assert result.code == 0, result.err
    model = onnx.load(output)
    onnx.checker.check_model(model, full_check=True)
    kinds = [node.op_type for node in model.graph.node]
    assert result.json["quantized_tensors"] == kinds.count("QuantizeLinear") > 3
    assert result.json["precision"] == precision and result.json["bytes"] == output.stat().st_size
    codes = {tensor.data_type for tensor in model.graph.initializer if tensor.name.endswith("zero_point")}
    wide = getattr(onnx.TensorProto, precision.upper())
    assert wide in codes
    ours = torq_byoc.compile(output)
    direct = torq_byoc.compile(workspace.model, precision=precision, calibration=workspace.calibration)
    assert [part.blob for part in ours.partitions] == [part.blob for part in direct.partitions]
    x = samples(1, 7)
    (theirs,) = run_reference(model, {INPUT: x})
    last = next(node for node in model.graph.node if node.output[0] == model.graph.output[0].name)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert np.abs(theirs - ours.run({INPUT: x})["y"]).max() <= float(held[last.input[1]]) * 1.001


def test_bytes_are_the_same_every_time_and_the_default_name_is_the_models(workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = torq(capsys, "quantize", workspace.model, "--calib", workspace.calibration)
    output = tmp_path / f"{workspace.model.stem}.qdq.onnx"
    assert result.code == 0 and f"wrote {output.name}" in result.out
    first = output.read_bytes()
    torq(capsys, "quantize", workspace.model, "--calib", workspace.calibration)
    assert output.read_bytes() == first


def test_shapes_and_methods_are_those_of_the_quantizer(tmp_path, capsys):
    onnx.save(conv_model(height="height"), tmp_path / "m.onnx")
    data = npz(tmp_path, **{INPUT: samples(100)})
    arguments = ("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--calib", data)
    assert_refused(capsys, "ShapeError", *arguments)
    shape = ("--shape", f"{INPUT}:1x3x10x9")
    written = {}
    for method in ("minmax", "percentile"):
        result = torq(capsys, *arguments, *shape, "--calibration-method", method, "--json")
        assert result.code == 0 and result.json["calibration"]["method"] == method
        written[method] = (tmp_path / "q.onnx").read_bytes()
    assert written["minmax"] != written["percentile"]
    message = assert_refused(capsys, "CommandLineError", *arguments, *shape, "--calibration-method", "minmx")
    assert "minmax" in message["try"]


def test_operators_without_integer_form_stay_float(tmp_path, capsys):
    onnx.save(mixed_model(), tmp_path / "m.onnx")
    data = npz(tmp_path, **{INPUT: np.random.default_rng(0).normal(size=(4, 4, 16)).astype(np.float32)})
    result = torq(capsys, "quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--calib", data)
    assert result.code == 0, result.err
    model = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(model, full_check=True)
    running = next(node for node in model.graph.node if node.op_type == "CumSum")
    source = next(node for node in model.graph.node if running.input[0] in node.output)
    assert source.op_type == "DequantizeLinear"


def test_refusals_leave_nothing_behind(workspace, tmp_path, capsys):
    output = tmp_path / "q.onnx"
    calibration = ("--calib", workspace.calibration)
    assert_refused(capsys, "CommandLineError", "quantize", workspace.model, "-o", output)
    assert_refused(capsys, "CommandLineError", "quantize", workspace.model, "-o", workspace.model, *calibration)
    assert_refused(
        capsys, "CommandLineError", "quantize", workspace.model, "-o", output, *calibration, "--precision", "bf16"
    )
    assert_refused(capsys, "CalibrationError", "quantize", workspace.model, "-o", output, "--calib", tmp_path / "none")
    assert_refused(capsys, "ModelFileError", "quantize", workspace.int8, "-o", output, *calibration)
    assert files_in(tmp_path) == set()


def test_a_quantized_model_is_refused(workspace, tmp_path, capsys):
    torq(capsys, "quantize", workspace.model, "-o", tmp_path / "q.onnx", "--calib", workspace.calibration)
    again = ("quantize", tmp_path / "q.onnx", "-o", tmp_path / "r.onnx", "--calib", workspace.calibration)
    message = assert_refused(capsys, "QuantizationError", *again)
    assert "already" in message["what"] and not (tmp_path / "r.onnx").exists()


def test_rewrites_are_told_and_can_be_left_out(tmp_path, capsys):
    stress = dead_channels(0)
    onnx.save(stress.model, tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", **stress.data(8, 1))
    command = ("quantize", tmp_path / "m.onnx", "--calib", tmp_path / "c.npz", "-o", tmp_path / "q.onnx", "--json")
    (rewrite,) = torq(capsys, *command).json["calibration"]["rewrites"]
    assert rewrite["name"] == "scale_outputs" and rewrite["after"] > rewrite["before"] + 1.0
    assert torq(capsys, *command, "--disable-rewrite", "scale_outputs").json["calibration"]["rewrites"] == []
