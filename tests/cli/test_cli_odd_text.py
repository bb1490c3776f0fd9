"""Text that is none: halves of characters in files, names of files that are no UTF-8, streams of few characters."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.test_cli_processes import torq as process
from tests.cli.tools import torq

HALF = r"\ud800"
FILES = {
    "plan tensor": ("QuantizationError", "--precision-plan", '{"version": 1, "tensors": {"%s": {}}}'),
    "plan rewrite": ("QuantizationError", "--precision-plan", '{"rewrites": [{"name": "%s", "places": []}]}'),
    "schedule node": ("ScheduleError", "--schedule", '{"format": 1, "nodes": {"%s": {}}}'),
    "schedule group": ("ScheduleError", "--schedule", '{"format": 1, "groups": [{"nodes": ["%s"]}]}'),
    "records": ("ScheduleError", "--records", '{"format": 1, "machines": {"%s": {}}}'),
    "machine key": ("HardwareConfigError", "--hw", '"%s": 3'),
    "machine name": ("HardwareConfigError", "--hw", 'name: "%s"'),
    "thresholds": ("AccuracyError", "--thresholds", 'layers: {names: {"%s": {min_local_sqnr: 3}}}'),
}


@pytest.mark.parametrize("case", FILES)
def test_half_of_a_character_in_a_file_is_refused_with_the_file(case, workspace, tmp_path, capsys):
    error, option, text = FILES[case]
    path = written(tmp_path / "f.yaml", (text % HALF).encode())
    request = ("compile", workspace.model, "-o", tmp_path / "o.torq")
    if option == "--thresholds":
        request = ("check", workspace.model, "--data", workspace.inputs)
    if option == "--precision-plan":
        request = (*request, "--calib", workspace.calibration, "--precision", "mixed")
    message = assert_refused(capsys, error, *request, option, path)
    assert "half of a surrogate pair" in message["why"] and str(path) in message["where"]
    assert files_in(tmp_path) == {path}


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_a_file_whose_name_is_no_text_is_a_file(workspace, tmp_path, capsys):
    name = os.fsdecode(b"\xfe.onnx")
    model = written(tmp_path / name, workspace.model.read_bytes())
    container, records, page = (tmp_path / each for each in ("o.torq", "r.json", "r.html"))
    compiled = torq(capsys, "compile", model, "-o", container, "--report", page, "--json")
    assert compiled.code == 0 and compiled.json["model"] == "\ufffd.onnx"
    assert "\ufffd.onnx" in page.read_text() and torq(capsys, "inspect", container).code == 0
    assert torq(capsys, "tune", model, "--records", records, "--trials", 1).code == 0
    assert "\ufffd.onnx" in json.dumps(json.loads(records.read_text()), ensure_ascii=False)
    checked = torq(capsys, "check", model, container, "--data", workspace.inputs, "--report", page)
    assert checked.code == 0 and "\ufffd.onnx" in page.read_text()


def test_a_stream_of_few_characters_gets_escapes(workspace, tmp_path):
    model = written(tmp_path / "\u65e5.onnx", workspace.model.read_bytes())
    result = process("compile", model, "-o", tmp_path / "o.torq", PYTHONIOENCODING="latin-1:strict")
    assert result.returncode == 0 and r"\u65e5.onnx (bf16)" in result.stdout, result.stderr
