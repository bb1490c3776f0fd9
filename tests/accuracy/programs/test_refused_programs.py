"""Programs that the verifier refuses: a finding with its layer, not the end of the check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.accuracy.fault import Fault
from benchmarks.accuracy.fault_subjects import Subject, outputs_of, subjects
from benchmarks.accuracy.program_faults import TILING
from tests.cli.tools import torq
from torq_byoc.accuracy.check import check
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.verdict.thresholds import thresholds_of
from torq_byoc.accuracy.verdict.verdict import is_defect
from torq_byoc.errors import VerificationError


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
