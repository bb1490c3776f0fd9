"""compile --report and --compare: the page beside the container, and every way in which it cannot be written."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import onnx
import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import Workspace, mixed_model, torq


def _compile(workspace: Workspace, *arguments: object) -> tuple[object, ...]:
    return ("compile", workspace.model, "--calib", workspace.calibration, *arguments)


def _page(path: Path) -> dict[str, str]:
    """The text of everything that has an identifier."""
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    return {e.get("id"): "".join(e.itertext()).strip() for e in root.iter() if e.get("id")}


def test_figures_of_the_page_are_those_of_json(workspace, tmp_path, capsys):
    report = tmp_path / "r.html"
    command = _compile(workspace, "-o", tmp_path / "o.torq", "--report", report, "--profile", "shared", "--json")
    data = torq(capsys, *command).json
    page = _page(report)
    assert data["report"] == str(report)
    assert page["figure-cycles"] == f"{data['cycles']['total']:,}"
    assert page["figure-compile"] == f"{data['compile_seconds']:.2f} s"
    assert page["figure-transfers"] == f"{data['dma']['in_transfers']:,}, {data['dma']['out_transfers']:,}"
    assert (tmp_path / "o.torq").read_bytes() == workspace.int8.read_bytes()


def test_before_is_the_other_container_and_after_this_one(workspace, tmp_path, capsys):
    report = tmp_path / "r.html"
    before = torq(capsys, "inspect", workspace.bf16, "--json").json
    command = _compile(workspace, "-o", tmp_path / "o.torq", "--report", report, "--compare", workspace.bf16)
    result = torq(capsys, *command)
    after = torq(capsys, "inspect", tmp_path / "o.torq", "--json").json
    assert result.code == 0 and f"wrote {report}" in result.out
    page = _page(report)
    change = after["cycles"]["total"] - before["cycles"]["total"]
    assert page["change-cycles"] == f"{change:+,}" and change != 0
    assert "tiny.onnx, bf16 on sl2610" in page["comparison"] and "tiny.onnx, int8 on sl2610" in page["comparison"]


def test_without_a_report_there_is_none(workspace, tmp_path, capsys):
    assert torq(capsys, *_compile(workspace, "-o", tmp_path / "o.torq", "--json")).json["report"] is None
    assert files_in(tmp_path) == {tmp_path / "o.torq"}


def test_comparing_needs_a_report(workspace, tmp_path, capsys):
    command = _compile(workspace, "-o", tmp_path / "o.torq", "--compare", workspace.bf16)
    assert "--compare" in assert_refused(capsys, "CommandLineError", *command)["what"]


def test_another_model_is_refused_and_nothing_written(workspace, tmp_path, capsys):
    onnx.save(mixed_model(), tmp_path / "mixed.onnx")
    other, output, report = tmp_path / "mixed.torq", tmp_path / "o.torq", tmp_path / "r.html"
    assert torq(capsys, "compile", tmp_path / "mixed.onnx", "-o", other).code == 0
    before = files_in(tmp_path)
    command = _compile(workspace, "-o", output, "--report", report, "--compare", other)
    message = assert_refused(capsys, "CommandLineError", *command)
    assert "another model" in message["what"] and str(other) in message["where"]
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"nothing", "truncated"])
def test_what_is_no_container_is_refused_before_compiling(content, workspace, tmp_path, capsys, monkeypatch):
    def late(*_, **__):
        raise AssertionError("compiled before the other container was read")

    monkeypatch.setattr("torq_byoc.cli.compile.compile_request", late)
    data = workspace.bf16.read_bytes()[:-9] if content == "truncated" else content
    other = written(tmp_path / "other.torq", data)
    command = _compile(workspace, "-o", tmp_path / "o.torq", "--report", tmp_path / "r.html", "--compare", other)
    assert_refused(capsys, "ProgramFormatError", *command)
    assert files_in(tmp_path) == {other}


CLASHES = {
    "the model": ("tiny.onnx", ()),
    "the container": ("o.torq", ()),
    "the calibration data": ("calib.npz", ()),
    "the other container": ("bf16.torq", ("--compare", "bf16.torq")),
    "a folder": ("folder", ()),
    "a device": ("/dev/null", ()),
}


@pytest.mark.parametrize("case", CLASHES)
def test_a_report_never_replaces_anything_else(case, workspace, tmp_path, capsys, monkeypatch):
    for path in (workspace.model, workspace.calibration, workspace.bf16):
        written(tmp_path / path.name, path.read_bytes())
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    before = {path: path.is_file() and path.read_bytes() for path in files_in(tmp_path)}
    report, more = CLASHES[case]
    command = ("compile", "tiny.onnx", "--calib", "calib.npz", "-o", "o.torq", "--report", report, *more)
    message = assert_refused(capsys, "CommandLineError", *command)
    assert message["what"] == "the output cannot go there" and report in message["where"]
    assert {path: path.is_file() and path.read_bytes() for path in files_in(tmp_path)} == before


def test_a_missing_folder_is_refused(workspace, tmp_path, capsys):
    command = _compile(workspace, "-o", tmp_path / "o.torq", "--report", tmp_path / "none" / "r.html")
    assert_refused(capsys, "EnvironmentProblem", *command)
    assert files_in(tmp_path) == set()


def test_a_full_disk_leaves_no_half_a_page(workspace, tmp_path, capsys, monkeypatch):
    """The container is whole, the older page stays, and no temporary file is left."""
    report = written(tmp_path / "r.html", b"older")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    command = _compile(workspace, "-o", tmp_path / "o.torq", "--report", report)
    assert torq(capsys, *_compile(workspace, "-o", tmp_path / "o.torq")).code == 0
    whole = (tmp_path / "o.torq").read_bytes()
    monkeypatch.setattr("torq_byoc.npu_model.container.os.fsync", full)
    message = assert_refused(capsys, "EnvironmentProblem", *command)
    assert "No space left" in message["why"]
    assert report.read_bytes() == b"older" and (tmp_path / "o.torq").read_bytes() == whole
    assert files_in(tmp_path) == {report, tmp_path / "o.torq"}


def test_the_same_compile_gives_the_same_page_but_for_the_seconds(workspace, tmp_path, capsys):
    pages = []
    for name in ("a", "b"):
        torq(capsys, *_compile(workspace, "-o", tmp_path / "o.torq", "--report", tmp_path / f"{name}.html"))
        page = _page(tmp_path / f"{name}.html")
        pages.append(
            {
                key: text
                for key, text in page.items()
                if key not in ("figures", "figure-compile", "passes", "pass-table")
            }
        )
    assert pages[0] == pages[1] and json.dumps(pages[0])
