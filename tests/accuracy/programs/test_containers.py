"""Containers checked with the options that they were compiled with, and with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.accuracy.fault_subjects import subjects
from benchmarks.accuracy.faults import INJECTORS
from tests.accuracy.models import chain, data, detector
from tests.cli.refusals import assert_refused
from tests.cli.tools import torq
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.container_numbers import require_same_numbers
from torq_byoc.errors import AccuracyError, TorqError

Compile = Callable[..., None]
SPLIT = ("--disable-rewrite", "concat_in_float", "--calibration-method", "mse")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with two models, calibration data, and data to check them on."""
    onnx.save(chain(), tmp_path / "chain.onnx")
    onnx.save(detector(), tmp_path / "detector.onnx")
    np.savez(tmp_path / "c.npz", **data(8, seed=1))
    np.savez(tmp_path / "other.npz", **data(8, seed=7))
    np.savez(tmp_path / "d.npz", **data(2, seed=9))
    return tmp_path


@pytest.fixture
def compiled(files: Path, capsys: pytest.CaptureFixture[str]) -> Compile:
    """Compiles a model with options."""

    def compile_it(model: str, *options: object) -> None:
        arguments = ("compile", files / model, "--calib", files / "c.npz", "-o", files / "q.torq", *options)
        assert torq(capsys, *arguments).code == 0

    return compile_it


def _check(files: Path, model: str, *options: object, calib: str = "c.npz") -> tuple[object, ...]:
    return ("check", files / model, files / "q.torq", "--data", files / "d.npz", "--calib", files / calib, *options)


def test_the_options_that_it_was_compiled_with_give_its_numbers(files, compiled, capsys):
    compiled("detector.onnx", *SPLIT)
    result = torq(capsys, *_check(files, "detector.onnx", *SPLIT), "--json")
    assert {miss["section"] for miss in result.json["misses"]} == {"outputs"}  # without the rewrite scores are lost
    assert {one["stage"] for one in result.json["deviations"]} == {"quantization"}


@pytest.mark.parametrize(
    ("options", "calib"),
    [((*SPLIT[:3], "minmax"), "c.npz"), (SPLIT, "other.npz"), (SPLIT[2:], "c.npz")],
    ids=["method", "data", "rewrites"],
)
def test_other_options_are_refused(files, compiled, capsys, options, calib):
    compiled("detector.onnx", *SPLIT)
    arguments = _check(files, "detector.onnx", *options, calib=calib)
    assert_refused(capsys, "AccuracyError", *arguments)
    refused = torq(capsys, *arguments)
    assert refused.code == 2
    assert "compiled from other numbers than these options give" in refused.err
    assert "--calib, --calibration-method, --disable-rewrite" in refused.err


def test_a_mixed_container_is_checked_with_its_plan(files, compiled, capsys):
    edited, plan = files / "edited.json", files / "plan.json"
    edited.write_text('{"version": 1, "dtype": "int16", "nodes": {"conv1": "bf16", "relu1": "bf16"}}')
    mixed = ("--precision", "mixed", "--precision-plan", edited)
    compiled("chain.onnx", *mixed, "--save-precision-plan", plan)
    result = torq(capsys, *_check(files, "chain.onnx", "--precision-plan", plan), "--json")
    assert result.code == 0 and result.json["precision"] == "mixed"
    without = torq(capsys, *_check(files, "chain.onnx"))
    assert without.code == 2
    assert "other numbers" in without.err and "--precision-plan FILE" in without.err


@pytest.mark.parametrize("name", ["digits int8", "residual int8 little", "fallback bf16 little"])
def test_single_faults_are_not_taken_for_other_numbers(name):
    """They stay attributable to a layer."""
    subject = next(iter(subjects(name)))
    require_same_numbers(subject.stages, Path("m.torq"))
    rng = np.random.default_rng(3)
    for stage in (Stage.TILING, Stage.CODE_GENERATION):
        for inject in INJECTORS[stage]:
            try:
                fault = inject(subject, rng)
            except TorqError:
                continue
            if fault is not None:
                require_same_numbers(fault.stages, Path("m.torq"))


def test_another_scale_at_the_border_is_other_numbers():
    """Even where all constants agree."""
    subject = next(iter(subjects("digits int8")))
    ((symbol, graph),) = subject.stages.graphs.items()
    name = graph.inputs[0]
    changed = replace(graph.tensors[name], scale=graph.tensors[name].scale * 2)
    stages = replace(subject.stages, graphs={symbol: replace(graph, tensors={**graph.tensors, name: changed})})
    with pytest.raises(AccuracyError):
        require_same_numbers(stages, Path("m.torq"))
