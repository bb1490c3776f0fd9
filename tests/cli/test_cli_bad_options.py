"""Options that make no sense, machines that cannot be, schedules that fit nothing, names that do not exist."""

from __future__ import annotations

import onnx
import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import INPUT, cpu_model, torq

HARDWARE = {
    "unknown preset": "sl9999",
    "no such file": "none/machine.yaml",
    "no mapping": "- 1\n- 2\n",
    "broken YAML": "slices: [1\n",
    "unknown field": "warp_drives: 3\n",
    "wrong type": "slices: many\n",
    "no slices": "slices: 0\n",
    "negative memory": "lram_bytes: -1\n",
    "infinite rate": "dma_factor: .inf\n",
    "memory smaller than its reserve": "lram_bytes: 1024\n",
}


@pytest.mark.parametrize("case", HARDWARE)
def test_impossible_hardware(case, workspace, tmp_path, capsys):
    text = HARDWARE[case]
    machine: object = text
    if "\n" in text:
        machine = tmp_path / "machine.yaml"
        machine.write_text(text)
    before = files_in(tmp_path)
    assert_refused(
        capsys, "HardwareConfigError", "compile", workspace.model, "-o", tmp_path / "o.torq", "--hw", machine
    )
    assert files_in(tmp_path) == before


OPTIONS = {
    "int8 without data": ("QuantizationError", ["--precision", "int8"]),
    "int16 without data": ("QuantizationError", ["--precision", "int16"]),
    "unknown precision": ("CommandLineError", ["--precision", "fp4"]),
    "unknown profile": ("CommandLineError", ["--profile", "optimistic"]),
    "shape without name": ("ShapeError", ["--shape", "1x3x4"]),
    "shape with letters": ("ShapeError", ["--shape", f"{INPUT}:1xax4"]),
    "shape with zero": ("ShapeError", ["--shape", f"{INPUT}:1x0x4x4"]),
    "shape of no input": ("ShapeError", ["--shape", "nobody:1x3x10x9"]),
    "shape of another rank": ("ShapeError", ["--shape", f"{INPUT}:1x3x10"]),
    "shape against the model": ("ShapeError", ["--shape", f"{INPUT}:1x4x10x9"]),
    "astronomic shape": ("ShapeError", ["--shape", f"{INPUT}:{'9' * 30}x3x10x9"]),
    "unknown pass": ("ScheduleError", ["--disable-pass", "magic"]),
    "unknown rewrite": ("QuantizationError", ["--disable-rewrite", "magic"]),
    "missing schedule": ("ScheduleError", ["--schedule", "none.json"]),
    "effort out of range": ("CommandLineError", ["--effort", "9"]),
    "unknown option": ("CommandLineError", ["--frobnicate"]),
    "surplus argument": ("CommandLineError", ["second.onnx"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, workspace, tmp_path, capsys):
    error, arguments = OPTIONS[case]
    assert_refused(capsys, error, "compile", workspace.model, "-o", tmp_path / "o.torq", *arguments)
    assert files_in(tmp_path) == set()


SCHEDULES = {
    "no JSON": b"tile everything",
    "binary": bytes(range(256)),
    "wrong form": b"[1, 2, 3]",
    "newer format": b'{"format": 999, "nodes": {}, "resident": {}}',
    "unknown node": b'{"format": 1, "nodes": {"nobody": {"tile": [1, 1, 1, 1]}}, "resident": {}}',
    "tile of another rank": b'{"format": 1, "nodes": {"conv+relu": {"tile": [1, 1]}}, "resident": {}}',
    "empty tile": b'{"format": 1, "nodes": {"conv+relu": {"tile": [0, 0, 0, 0]}}, "resident": {}}',
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_bad_schedules(case, workspace, tmp_path, capsys):
    record = written(tmp_path / "record.json", SCHEDULES[case])
    assert_refused(capsys, "ScheduleError", "compile", workspace.model, "-o", tmp_path / "o.torq", "--schedule", record)
    assert files_in(tmp_path) == {record}


@pytest.mark.parametrize(
    "arguments",
    [("frobnicate",), ("compile",), ("run", "a.torq"), ("--frobnicate",), ("inspect", "a", "b"), ("demo", "x")],
)
def test_usage_errors(arguments, capsys):
    message = assert_refused(capsys, "CommandLineError", *arguments)
    assert "--help" in message["try"]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("bench", "{container}", "--calib", "x.npz"), "--calib"),
        (("bench", "{container}", "--precision", "bf16"), "--precision"),
        (("ops", "--hw", "4slice"), "--hw"),
        (("ops", "{model}", "--markdown"), "--markdown"),
        (("ops", "{model}", "--schedule", "s.json"), "--schedule"),
        (("ops", "{model}", "--records", "r.json"), "--records"),
        (("ops", "{model}", "--effort", "2"), "--effort"),
        (("ops", "{model}", "--disable-pass", "fusion"), "--disable-pass"),
        (("tune", "{model}", "--records", "r.json", "--target-sqnr", "40"), "--target-sqnr"),
        (("tune", "{model}", "--records", "r.json", "--precision-plan", "p.json"), "--precision-plan"),
        (("inspect", "{container}", "--layer", "conv"), "--layer"),
    ],
)
def test_options_without_effect_are_refused(arguments, option, workspace, capsys):
    names = {"model": workspace.model, "container": workspace.int8}
    message = assert_refused(capsys, "CommandLineError", *(argument.format(**names) for argument in arguments))
    assert option in message["what"] and message["why"]


@pytest.mark.parametrize(
    ("arguments", "error", "meant"),
    [
        (("compil", "m.onnx"), "CommandLineError", "compile"),
        (("compile", "{model}", "--precision", "INT8"), "CommandLineError", "int8"),
        (("compile", "{model}", "--profile", "refrence"), "CommandLineError", "reference"),
        (("inspect", "{container}", "--profile", "share"), "CommandLineError", "shared"),
        (("compile", "{model}", "--hw", "sl2160"), "HardwareConfigError", "sl2610"),
        (("compile", "{model}", "--disable-pass", "dead-store"), "ScheduleError", "dead-stores"),
        (("compile", "{model}", "--schedule", "{record}"), "ScheduleError", "conv+relu"),
    ],
)
def test_the_nearest_name_is_suggested(arguments, error, meant, workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = written(tmp_path / "record.json", b'{"format": 1, "nodes": {"conv+rely": {}}, "resident": {}}')
    names = {"model": workspace.model, "container": workspace.int8, "record": record}
    message = assert_refused(capsys, error, *(argument.format(**names) for argument in arguments))
    assert f"did you mean {meant!r}?" in message["try"]
    assert files_in(tmp_path) == {record}


def test_an_unknown_option_suggests_the_nearest(workspace, capsys):
    message = assert_refused(capsys, "CommandLineError", "compile", workspace.model, "--precison", "int8")
    assert "--precision" in message["what"]


def test_a_pass_that_does_not_exist_is_refused_where_no_pass_runs(tmp_path, capsys):
    model = cpu_model()
    onnx.save(model, tmp_path / "m.onnx")
    command = ("compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--disable-pass", "magic")
    assert_refused(capsys, "ScheduleError", *command)


def test_names_of_the_options_are_those_of_the_compiler_and_the_machine():
    from torq_byoc.cli import options
    from torq_byoc.compilation.options import PRECISIONS
    from torq_byoc.npu_model.timing import Profile

    assert options.PRECISIONS == PRECISIONS
    assert set(options.PROFILES) == {profile.value for profile in Profile}


@pytest.mark.parametrize("command", ["compile", "ops", "tune"])
def test_a_rewrite_that_is_disabled_where_nothing_is_quantized_is_noted(command, workspace, tmp_path, capsys):
    outputs = {"compile": ("-o", tmp_path / "o.torq"), "tune": ("--records", tmp_path / "r.json", "--trials", 1)}
    request = (command, workspace.model, *outputs.get(command, ()), "--disable-rewrite", "scale_outputs")
    note = "nothing is quantized here: that rewrites are disabled (scale_outputs) has no effect"
    assert note in torq(capsys, *request, "--json").json["notes"]
    assert f"note: {note}" in torq(capsys, *request).out
