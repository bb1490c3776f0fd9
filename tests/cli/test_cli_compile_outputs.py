"""What compile writes beside the container: all of it or nothing, and it agrees with its documents."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import torq_byoc
from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import INPUT, mixed_model, torq


def _full_from(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A disk that takes so many files less one, in every run of a command."""
    count = 0
    real = os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count % number == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr("torq_byoc.files.os.fsync", fsync)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_on_a_full_disk_every_older_output_stays(number, workspace, tmp_path, capsys, monkeypatch):
    old = {tmp_path / name: b"old " + name.encode() for name in ("o.torq", "r.html", "s.json")}
    for path, content in old.items():
        path.write_bytes(content)
    _full_from(monkeypatch, number)
    command = ("compile", workspace.model, "-o", "o.torq", "--report", "r.html", "--save-schedule", "s.json")
    monkeypatch.chdir(tmp_path)
    assert "No space left" in assert_refused(capsys, "EnvironmentProblem", *command)["why"]
    assert {path: path.read_bytes() for path in files_in(tmp_path)} == old


@pytest.mark.parametrize("number", [1, 2, 5])
def test_on_a_full_disk_there_is_no_part_of_a_dump(number, workspace, tmp_path, capsys, monkeypatch):
    _full_from(monkeypatch, number)
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--dump-ir", tmp_path / "deep" / "ir")
    assert_refused(capsys, "EnvironmentProblem", *command)
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("number", [1, 4])
def test_on_a_full_disk_the_earlier_dump_stays(number, workspace, tmp_path, capsys, monkeypatch):
    ir = tmp_path / "ir"
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--dump-ir", ir)
    assert torq(capsys, *command).code == 0
    before = {path: path.read_bytes() for path in files_in(tmp_path) if path.is_file()}
    _full_from(monkeypatch, number)
    assert_refused(capsys, "EnvironmentProblem", *command, "--effort", "0")
    assert {path: path.read_bytes() for path in files_in(tmp_path) if path.is_file()} == before


def test_a_full_disk_leaves_neither_result_nor_timeline_of_run(workspace, tmp_path, capsys, monkeypatch):
    _full_from(monkeypatch, 2)
    command = ("run", workspace.int8, "--input", workspace.inputs)
    outputs = ("--output", tmp_path / "o.npz", "--trace", tmp_path / "t.json")
    assert_refused(capsys, "EnvironmentProblem", *command, *outputs)
    assert files_in(tmp_path) == set()


def test_a_dump_takes_the_place_of_an_earlier_one_and_of_nothing_else(workspace, tmp_path, capsys):
    ir = tmp_path / "ir"
    ir.mkdir()
    kept = {written(ir / name, b"mine") for name in ("00-notes.txt", "tensor.txt", "01-tensor-partitioned.md")}
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--dump-ir", ir)
    assert torq(capsys, *command).code == 0
    first = {path.name for path in files_in(ir) - kept}
    assert torq(capsys, *command, "--disable-pass", "dead-stores", "--disable-pass", "residency").code == 0
    second = {path.name for path in files_in(ir) - kept}
    assert any("dead-stores" in name for name in first) and not any("dead-stores" in name for name in second)
    assert sorted(int(name[:2]) for name in second) == list(range(len(second))), "no file of the first is left"
    assert all(path.read_bytes() == b"mine" for path in kept)


def test_the_document_names_every_level_of_a_dump(workspace, tmp_path, capsys):
    from torq_byoc.codegen.passes import NAMES

    ir = tmp_path / "ir"
    torq(capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--dump-ir", ir)
    document = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    levels = [re.fullmatch(r"\d\d-(\w+)-([a-z-]+)\.txt", path.name).groups() for path in sorted(ir.iterdir())]
    assert levels[0] == ("tensor", "partitioned") and levels[-1] == ("torq_hw", "disassembly")
    for level, step in levels:
        assert f"`{level}-{step}`" in document or (level == "torq_hl" and (step in NAMES or f"`{step}`" in document))
    code = sorted(ir.iterdir())[-1].read_text().splitlines()
    shown = torq(capsys, "inspect", tmp_path / "o.torq", "--disassemble", "--lines", 0, "--json").json["disassembly"]
    assert code == shown


def _two_branches() -> onnx.ModelProto:
    """Two convolutions that the CPU separates, so that there are several NPU programs."""
    rng = np.random.default_rng(5)
    weights = {name: rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("Conv", [INPUT, "v"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("CumSum", ["a", "axis"], ["b"], "running_sum"),
        helper.make_node("Conv", ["b", "w"], ["y"], "second", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 4, 6, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            *(numpy_helper.from_array(value, name) for name, value in weights.items()),
            numpy_helper.from_array(np.array(3, np.int64), "axis"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("model", ["tiny", "mixed", "two branches"])
def test_a_saved_schedule_gives_the_same_container(model, workspace, tmp_path, capsys):
    path = tmp_path / "m.onnx"
    builders = {"tiny": lambda: onnx.load(workspace.model), "mixed": mixed_model, "two branches": _two_branches}
    onnx.save(builders[model](), path)
    record, first, second = (tmp_path / name for name in ("s.json", "first.torq", "second.torq"))
    assert torq(capsys, "compile", path, "-o", first, "--save-schedule", record).code == 0
    assert torq(capsys, "compile", path, "-o", second, "--schedule", record, "--effort", 0).code == 0
    partitions = torq_byoc.load(first).partitions
    assert len(partitions) == (2 if model != "tiny" else 1) or model == "mixed"
    assert set(json.loads(record.read_text())) - {"slices"} == {"format", "nodes", "resident", "groups"}
    for one, other in zip(partitions, torq_byoc.load(second).partitions, strict=True):
        assert one.program == other.program and one.facts.decisions == other.facts.decisions


BAD_SCHEDULES = {
    "malformed": b"{",
    "wrong form": b'{"format": 1, "nodes": {"conv+relu": {"tile": 3}}}',
    "unknown node": b'{"format": 1, "nodes": {"nobody": {}}}',
    "tile of another rank": b'{"format": 1, "nodes": {"conv+relu": {"tile": [1, 1]}}}',
    "unknown tensor": b'{"format": 1, "resident": {"nobody": true}}',
    "group of nothing": b'{"format": 1, "groups": [{"nodes": ["conv+relu", "nobody"], "axis": 2, "size": 1,'
    b' "split_axes": [null, null], "buffers": 2}]}',
    "group along no axis": b'{"format": 1, "groups": [{"nodes": ["conv+relu", "pool"], "axis": 9, "size": 1,'
    b' "split_axes": [null, null], "buffers": 2}]}',
}


@pytest.mark.parametrize("command", ["compile", "bench"])
@pytest.mark.parametrize("case", BAD_SCHEDULES)
def test_errors_of_a_schedule_name_its_file(case, command, workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = written(tmp_path / "hand.json", BAD_SCHEDULES[case])
    message = assert_refused(capsys, "ScheduleError", command, workspace.model, "--schedule", "hand.json")
    assert message["where"].startswith("hand.json")
    assert files_in(tmp_path) == {record}


def _with_folded_node(workspace) -> onnx.ModelProto:
    """The tiny model behind an Identity, which is in no program."""
    model = onnx.load(workspace.model)
    model.graph.node[0].input[0] = "same"
    model.graph.node.insert(0, helper.make_node("Identity", [INPUT], ["same"], "nothing"))
    return model


def test_a_node_that_was_folded_away_has_no_story(workspace, tmp_path, capsys):
    onnx.save(_with_folded_node(workspace), tmp_path / "m.onnx")
    command = ("compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--explain-layer")
    message = assert_refused(capsys, "ScheduleError", *command, "nothing")
    assert "'nothing'" in message["what"] and "folded away" in message["why"] and "torq ops" in message["try"]
    assert "folded" not in assert_refused(capsys, "ScheduleError", *command, "nobody")["why"]


@pytest.mark.parametrize("layer", ["conv", "pool", "dense"])
def test_a_story_is_readable(layer, workspace, tmp_path, capsys):
    command = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--explain-layer", layer, "--json")
    story = torq(capsys, *command).json["story"]
    assert not any("Decision(" in line for line in story)
    (scheduled,) = [line for line in story if line.startswith("scheduled: ")]
    assert re.search(r"scheduled: (tile \d+|bands of \d+ along axis \d)", scheduled) and " buffers" in scheduled


def test_doctor_looks_at_every_package_that_is_declared(capsys):
    setup = (Path(__file__).parents[2] / "setup.py").read_text()
    required = re.findall(r'"([A-Za-z_\-0-9]+)>=', setup.split("install_requires=[")[1].split("]")[0])
    names = {check["name"] for check in torq(capsys, "doctor", "--json").json["checks"]}
    assert set(required) <= names and {"onnxruntime", "optuna"} <= names


def test_doctor_is_content_without_what_is_optional(capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    data = torq(capsys, "doctor", "--json").json
    assert data["healthy"]
    assert [check["status"] for check in data["checks"] if check["name"] == "optuna"] == ["warning"]


def test_help_of_tune_lists_no_option_that_is_always_refused(capsys):
    text = torq(capsys, "tune", "--help").out
    assert "--schedule" not in text and "--records" in text and "to reuse" not in text
