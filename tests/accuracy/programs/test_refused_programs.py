"""Programs that the verifier refuses: a finding with its layer, not the end of the check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

import torq_byoc
from benchmarks.accuracy.fault import Fault
from benchmarks.accuracy.fault_subjects import Subject, outputs_of, subjects
from benchmarks.accuracy.program_faults import TILING
from tests.cli.tools import torq
from torq_byoc.accuracy.check import check
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.verdict.thresholds import thresholds_of
from torq_byoc.accuracy.verdict.verdict import is_defect
from torq_byoc.errors import VerificationError
from torq_byoc.kernels.conv2d import Conv2d
from torq_byoc.npu_model.isa import Agent, SliceTask


@pytest.fixture(params=["residual int8 little", "fallback bf16 little"])
def refused(request: pytest.FixtureRequest) -> tuple[Subject, Fault]:
    """A model, and a fault in where its program works that the verifier sees."""
    subject = next(iter(subjects(request.param)))
    for seed in range(100):
        generator = np.random.default_rng(seed)
        fault = TILING[seed % len(TILING)](subject, generator)
        if fault is not None and outputs_of(fault.stages, subject.samples[:1]) is None:
            with pytest.raises(VerificationError):
                fault.stages.compiled.run(subject.samples[0])
            return subject, fault
    raise AssertionError("the verifier refuses none of these faults")


def test_a_refused_program_is_a_finding(refused: tuple[Subject, Fault]) -> None:
    subject, fault = refused
    result = check(fault.stages, subject.feeds, layer_samples=2)
    assert not result.passed and result.outputs == ()
    (miss,) = result.misses
    assert miss.section == "program"
    first = next(filter(is_defect, result.deviations))
    assert first.stage is Stage.TILING and first.node in fault.layers
    assert result.cause is not None and (result.cause.stage, result.cause.node) == (first.stage, first.node)


def test_labels_and_metrics_of_nothing_are_left_out(refused: tuple[Subject, Fault]) -> None:
    def metric(wanted: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> float:
        raise AssertionError("there is nothing to judge")

    subject, fault = refused
    limits = thresholds_of({"metric": {"metric": {"min": 1}}})
    data = {**subject.feeds, "labels": np.zeros(len(subject.feeds["x"]), np.int64)}
    result = check(fault.stages, data, layer_samples=1, metric=metric, thresholds=limits)
    assert not result.passed and result.labels is None and dict(result.metric) == {}


def test_the_command_reports_it(
    refused: tuple[Subject, Fault], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject, fault = refused
    onnx.save(subject.stages.original, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **subject.feeds)
    fault.stages.compiled.save(tmp_path / "m.torq")
    calibration = subject.stages.options.calibration
    given: tuple[object, ...] = ("check", tmp_path / "m.onnx", tmp_path / "m.torq", "--data", tmp_path / "d.npz")
    if calibration is not None:
        np.savez(tmp_path / "c.npz", **calibration)
        given = (*given, "--calib", tmp_path / "c.npz")
    result = torq(capsys, *given, "--report", tmp_path / "r.html")
    assert result.code == 1 and result.out.startswith("may NOT be shipped"), result.err
    assert "May not be shipped" in (tmp_path / "r.html").read_text()


@pytest.fixture
def overrunning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler whose convolutions write beyond the LRAM in the layer conv3."""
    right = Conv2d.tasks

    def beyond(task: SliceTask) -> SliceTask:
        moved = [replace(ndl, base=1 << 24) if ndl.agent is Agent.DEQW else ndl for ndl in task.ndls]
        return replace(task, ndls=tuple(moved))

    def wrong(self: Conv2d, graph: Any, node: Any, *arguments: Any) -> list[SliceTask]:
        tasks = right(self, graph, node, *arguments)
        return [beyond(task) for task in tasks] if "conv3" in node.name else tasks

    monkeypatch.setattr(Conv2d, "tasks", wrong)


@pytest.mark.usefixtures("overrunning")
def test_a_program_that_is_compiled_here_is_a_finding_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What ``compile`` refuses to write, ``check`` explains and cuts out."""
    subject = next(iter(subjects("residual int8")))
    onnx.save(subject.stages.original, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **subject.feeds)
    np.savez(tmp_path / "c.npz", **subject.stages.options.calibration or {})
    calibration = ("--calib", tmp_path / "c.npz")
    with pytest.raises(VerificationError):
        torq_byoc.compile(tmp_path / "m.onnx", calibration=tmp_path / "c.npz")
    given = ("check", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", *calibration)
    result = torq(capsys, *given, "--bisect", tmp_path / "cut", "--json")
    assert result.code == 1, result.err
    (miss,) = result.json["misses"]
    cause, cut = result.json["cause"], result.json["cut"]
    assert miss["section"] == "program" and cause["node"] == "relu3"
    assert cut["nodes"] == ["conv3", "relu3"] and cut["fails_alike"]
    again = torq(capsys, "check", tmp_path / "cut" / "cut.onnx", "--data", tmp_path / "cut" / "cut.npz", "--json")
    assert again.code == 1 and again.json["cause"]["node"] == "relu3"
