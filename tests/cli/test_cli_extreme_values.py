"""Numbers beyond every range, empty names, things given twice, and messages about huge values."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import INPUT, torq

HUGE = "9" * 23
LONGER_THAN_PYTHON_READS = "9" * 5000

NUMBERS = {
    "lines": ("inspect", "{container}", "--disassemble", "--lines"),
    "effort": ("compile", "{model}", "--effort"),
    "trials": ("tune", "{model}", "--records", "r.json", "--trials"),
    "seed": ("tune", "{model}", "--records", "r.json", "--seed"),
    "seconds": ("tune", "{model}", "--records", "r.json", "--seconds"),
    "budget": ("bench", "{model}", "--budget"),
}


def _filled(workspace, arguments):
    names = {"model": workspace.model, "container": workspace.int8}
    return [argument.format(**names) for argument in arguments]


@pytest.mark.parametrize("value", [HUGE, LONGER_THAN_PYTHON_READS, "-1", "nan", "inf", "-inf", "1e400", ""])
@pytest.mark.parametrize("option", NUMBERS)
def test_numbers_that_no_command_can_use(option, value, workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = assert_refused(capsys, "CommandLineError", *_filled(workspace, NUMBERS[option]), value)
    assert f"--{option}" in message["what"] and len(message["what"]) < 1000
    assert files_in(tmp_path) == set()


def test_one_more_than_the_largest_seed_is_refused_for_every_strategy(workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for strategy in ("random", "evolutionary", "bayesian"):
        command = ("tune", workspace.model, "--records", "r.json", "--strategy", strategy, "--seed", 2**32)
        assert "4294967295" in assert_refused(capsys, "CommandLineError", *command)["what"]


@pytest.mark.parametrize("strategy", ["random", "evolutionary", "bayesian"])
def test_the_largest_seed_is_a_seed(strategy, workspace, tmp_path, capsys):
    if strategy == "bayesian":
        pytest.importorskip("optuna")
    records = tmp_path / "r.json"
    options = ("--strategy", strategy, "--seed", 2**32 - 1, "--trials", 20, "--json")
    assert torq(capsys, "tune", workspace.model, "--records", records, *options).json["seed"] == 2**32 - 1


PATHS = {
    "compile model": ("compile", ""),
    "compile -o": ("compile", "{model}", "-o", ""),
    "compile --calib": ("compile", "{model}", "--calib", ""),
    "compile --dump-ir": ("compile", "{model}", "--dump-ir", ""),
    "compile --report": ("compile", "{model}", "--report", ""),
    "compile --compare": ("compile", "{model}", "--report", "r.html", "--compare", ""),
    "compile --schedule": ("compile", "{model}", "--schedule", ""),
    "compile --save-schedule": ("compile", "{model}", "--save-schedule", ""),
    "compile --records": ("compile", "{model}", "--records", ""),
    "compile --explain-layer": ("compile", "{model}", "--explain-layer", ""),
    "compile --hw": ("compile", "{model}", "--hw", ""),
    "compile --disable-pass": ("compile", "{model}", "--disable-pass", ""),
    "run container": ("run", "", "--input", "i.npz", "--output", "o.npz"),
    "run --input": ("run", "{container}", "--input", "", "--output", "o.npz"),
    "run --output": ("run", "{container}", "--input", "i.npz", "--output", ""),
    "run --trace": ("run", "{container}", "--input", "i.npz", "--output", "o.npz", "--trace", ""),
    "inspect": ("inspect", ""),
    "inspect --layer": ("inspect", "{container}", "--disassemble", "--layer", ""),
    "bench": ("bench", ""),
    "ops": ("ops", ""),
    "demo --trace": ("demo", "--trace", ""),
    "tune --records": ("tune", "{model}", "--records", ""),
    "tune --strategy": ("tune", "{model}", "--records", "r.json", "--strategy", ""),
}


@pytest.mark.parametrize("case", PATHS)
def test_an_empty_name_is_refused(case, workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = assert_refused(capsys, "CommandLineError", *_filled(workspace, PATHS[case]))
    assert "is empty" in message["what"]
    assert message["where"].startswith("torq ") and (" -" not in case or message["where"].endswith(case.split()[1]))
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("second", ["1x3x10x9", "2x3x10x9"])
def test_an_input_has_one_shape(second, workspace, tmp_path, capsys):
    shapes = ("--shape", f"{INPUT}:1x3x10x9", "--shape", f"{INPUT}:{second}")
    message = assert_refused(capsys, "ShapeError", "compile", workspace.model, "-o", tmp_path / "o.torq", *shapes)
    assert repr(INPUT) in message["what"] and message["where"] == "--shape"


def test_an_extent_of_thousands_of_digits_is_no_shape(workspace, tmp_path, capsys):
    shape = ("--shape", f"{INPUT}:{LONGER_THAN_PYTHON_READS}x3x10x9")
    message = assert_refused(capsys, "ShapeError", "compile", workspace.model, "-o", tmp_path / "o.torq", *shape)
    assert len(message["what"]) < 1000


@pytest.mark.parametrize("wrong", ["nosuch", "poool", "convolution"])
def test_a_layer_to_disassemble_exists(wrong, workspace, capsys):
    message = assert_refused(capsys, "CommandLineError", "inspect", workspace.int8, "--disassemble", "--layer", wrong)
    assert "pool" in message["try"] and repr(wrong) in message["what"]
    if wrong == "poool":
        assert message["try"].startswith("did you mean 'pool'?")


DOUBLED = {
    "format": '{"format": 1, "format": 1}',
    "node": '{"format": 1, "nodes": {"conv+relu": {}, "conv+relu": {"buffers": 1}}}',
    "buffers": '{"format": 1, "nodes": {"conv+relu": {"buffers": 1, "buffers": 2}}}',
}


@pytest.mark.parametrize("case", DOUBLED)
def test_a_key_twice_in_a_schedule_is_refused(case, workspace, tmp_path, capsys):
    record = written(tmp_path / "record.json", DOUBLED[case].encode())
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--schedule", record)
    message = assert_refused(capsys, "ScheduleError", *command)
    assert "twice" in message["why"] and str(record) in message["where"]


@pytest.mark.parametrize(
    "tile", [[1] * 100_000, "x" * 300_000, {"deep": ["long " * 60_000]}], ids=["list", "word", "words"]
)
@pytest.mark.parametrize("field", ["tile", "buffers"])
def test_messages_about_huge_values_are_short(field, tile, workspace, tmp_path, capsys):
    record = written(tmp_path / "r.json", json.dumps({"nodes": {"conv+relu": {field: tile}}}).encode())
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--schedule", record)
    assert_refused(capsys, "ScheduleError", *command)
    assert len(torq(capsys, *command).err) < 5000


@pytest.mark.parametrize("kind", ["model", "compile", "tune", "ops"])
def test_a_container_is_no_model(kind, workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = {
        "model": ("compile", written(tmp_path / "m.onnx", workspace.int8.read_bytes())),
        "compile": ("compile", workspace.int8, "-o", "o.torq"),
        "tune": ("tune", workspace.int8, "--records", "r.json"),
        "ops": ("ops", workspace.int8),
    }
    message = assert_refused(capsys, "ModelFileError", *commands[kind])
    assert "compiled already" in message["what"]
    assert "torq run" in message["try"] and "torq inspect" in message["try"]


@pytest.mark.parametrize(
    ("arrays", "why", "remedy"),
    [
        ((INPUT, "more"), "unknown: more", "leave more out"),
        ((), f"missing: {INPUT}", f"give {INPUT} as well"),
        (("more",), f"missing: {INPUT}; unknown: more", "use one of x"),
    ],
)
def test_arrays_of_other_names(arrays, why, remedy, workspace, tmp_path, capsys):
    np.savez(tmp_path / "d.npz", **{name: np.zeros((1, 3, 10, 9), np.float32) for name in (*arrays, "labels")})
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", tmp_path / "d.npz")
    message = assert_refused(capsys, "CalibrationError", *command)
    assert message["why"] == why and remedy in message["try"]


def test_missing_calibration_is_told_without_numbers_of_the_system(workspace, tmp_path, capsys):
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", tmp_path / "nosuch")
    assert assert_refused(capsys, "CalibrationError", *command)["why"] == "No such file or directory"
