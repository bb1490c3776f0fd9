"""``torq tune`` and what later commands make of its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import Workspace, torq

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tuned(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A file of records, written by a process with a hash seed of its own, and what it printed."""
    records = tmp_path_factory.mktemp("tune") / "records.json"
    return records, tune_elsewhere(workspace, records, hash_seed="1")


def tune_elsewhere(workspace: Workspace, records: Path, hash_seed: str) -> dict:
    options = ["--calib", workspace.calibration, "--records", records, "--trials", 15, "--seed", 3, "--json"]
    command = [sys.executable, "-m", "torq_byoc", "tune", workspace.model, *options]
    result = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(result.stdout)


def test_the_object_says_what_was_found(tuned):
    records, data = tuned
    assert set(data) == {
        "model", "hw", "profile", "strategy", "seed", "default_cycles", "cycles", "partitions", "plan", "notes",
        "warnings", "records",
    }  # fmt: skip
    assert data["cycles"] <= data["default_cycles"] and data["records"] == str(records)
    (partition,) = data["partitions"]
    assert partition["trials"] == 15 and partition["infeasible"] <= 15
    assert [found["cycles"] for found in partition["improvements"]][-1:] in ([], [data["cycles"]])


def test_equal_requests_write_equal_files(tuned, workspace, tmp_path):
    records, data = tuned
    again = tmp_path / "records.json"
    assert {**tune_elsewhere(workspace, again, hash_seed="2"), "records": str(records)} == data
    assert again.read_bytes() == records.read_bytes()


def test_compiling_with_the_records_gives_the_same_cycles_and_results(tuned, workspace, tmp_path, capsys):
    records, data = tuned
    output = tmp_path / "tuned.torq"
    request = ("compile", workspace.model, "--calib", workspace.calibration, "-o", output, "--records", records)
    summary = torq(capsys, *request, "--json").json
    assert summary["cycles"]["total"] == data["cycles"]
    assert any("decided by a tuning record of tiny.onnx" in note for note in summary["notes"])
    assert "decided by a tuning record" in torq(capsys, *request).out
    results = []
    for container in (workspace.int8, output):
        assert torq(capsys, "run", container, "--input", workspace.inputs, "--output", tmp_path / "y.npz").code == 0
        with np.load(tmp_path / "y.npz") as arrays:
            results.append(arrays["y"])
    np.testing.assert_array_equal(*results)


def test_the_search_goes_on_from_the_file(tuned, workspace, tmp_path, capsys):
    records, data = tuned
    more = written(tmp_path / "records.json", records.read_bytes())
    result = torq(
        capsys, "tune", workspace.model, "--calib", workspace.calibration, "--records", more, "--trials", 1, "--json"
    )
    assert result.json["cycles"] == data["cycles"]


def test_the_text_names_changes_and_file(workspace, tmp_path, capsys):
    records = tmp_path / "records.json"
    result = torq(capsys, "tune", workspace.model, "--records", records, "--strategy", "random", "--trials", 3)
    assert result.code == 0 and "cycles by default" in result.out and f"wrote {records}" in result.out
    assert files_in(tmp_path) == {records}


BAD = {
    "no file": ("CommandLineError", []),
    "unknown strategy": ("CommandLineError", ["--records", "r.json", "--strategy", "greedy"]),
    "no trials": ("CommandLineError", ["--records", "r.json", "--trials", "0"]),
    "a schedule by hand": ("CommandLineError", ["--records", "r.json", "--schedule", "hand.json"]),
    "damaged records": ("ScheduleError", ["--records", "bad.json"]),
    "records of a newer format": ("ScheduleError", ["--records", "newer.json"]),
    "the records are the model": ("CommandLineError", ["--records", "tiny.onnx"]),
    "the records are a folder": ("CommandLineError", ["--records", "."]),
    "no such folder": ("EnvironmentProblem", ["--records", "none/r.json"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(case, workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "tiny.onnx", workspace.model.read_bytes())
    written(tmp_path / "bad.json", b'{"format": 2, "machines": {"x": 3}}')
    written(tmp_path / "newer.json", b'{"format": 7}')
    written(tmp_path / "hand.json", b'{"format": 1, "groups": []}')
    before = {path: path.read_bytes() for path in files_in(tmp_path)}
    error, options = BAD[case]
    assert_refused(capsys, error, "tune", "tiny.onnx", *options)
    assert {path: path.read_bytes() for path in files_in(tmp_path)} == before


@pytest.mark.parametrize("content", [None, b"", b"[1]", b'{"format": 2, "machines": {"a": {"name": 1}}}'])
def test_compile_refuses_what_are_no_records(content, workspace, tmp_path, capsys):
    records = tmp_path / "records.json"
    if content is not None:
        records.write_bytes(content)
    message = assert_refused(
        capsys, "ScheduleError", "compile", workspace.model, "-o", tmp_path / "o.torq", "--records", records
    )
    assert message["where"] == str(records)
    assert not (tmp_path / "o.torq").exists()


def test_output_and_records_must_differ(workspace, tmp_path, capsys):
    records = written(tmp_path / "same.json", b'{"format": 2}')
    assert_refused(capsys, "CommandLineError", "compile", workspace.model, "-o", records, "--records", records)
    assert records.read_bytes() == b'{"format": 2}'


def test_an_interrupted_search_leaves_its_file(workspace, tmp_path, capsys, monkeypatch):
    from torq_byoc.explore.tuning import model

    records = tmp_path / "records.json"
    tune_model = model.tune_model

    def first_trials_only(*args, keep, **options):
        keep(tune_model(*args, keep=keep, **options).database)
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "tune_model", first_trials_only)
    request = ("tune", workspace.model, "--calib", workspace.calibration, "--records", records, "--trials", 2)
    assert torq(capsys, *request).code == 130
    assert "decided by a tuning record" in compiled_text(capsys, workspace, tmp_path, records)


@pytest.mark.parametrize("options", [("--disable-pass", "fusion"), ("--profile", "pessimistic")])
def test_a_record_is_for_its_own_passes_and_profile(options, tuned, workspace, tmp_path, capsys):
    records, _ = tuned
    copy = written(tmp_path / "records.json", records.read_bytes())
    assert "in other settings only" in compiled_text(capsys, workspace, tmp_path, copy, *options)
    request = ("--calib", workspace.calibration, "--records", copy, "--trials", 1, *options)
    assert torq(capsys, "tune", workspace.model, *request).code == 0
    for request in (options, ()):
        assert "decided by a tuning record" in compiled_text(capsys, workspace, tmp_path, copy, *request)


def compiled_text(capsys, workspace: Workspace, folder: Path, records: Path, *options: str) -> str:
    """What ``torq compile --records`` prints."""
    request = ("--calib", workspace.calibration, "-o", folder / "o.torq", "--records", records, *options)
    return torq(capsys, "compile", workspace.model, *request).out
