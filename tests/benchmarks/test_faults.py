"""Fault injection: every kind of fault in a program and in a host module is put down to its layer and class."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from benchmarks.accuracy.fault import Fault, Injector
from benchmarks.accuracy.fault_subjects import Subject, outputs_of, subjects
from benchmarks.accuracy.faults import run
from benchmarks.accuracy.host_faults import HOST
from benchmarks.accuracy.program_faults import CODE_GENERATION, TILING
from torq_byoc.accuracy.programs.program_check import ProgramCheck

SUBJECTS = ("residual int8 little", "fallback int8 little")
_DRAWS = 300


@functools.cache
def _subject(name: str) -> Subject:
    return next(iter(subjects(name)))


def _telling(subject: Subject, injector: Injector) -> Fault | None:
    """The first fault of some seeds that moves an output."""
    for seed in range(_DRAWS):
        fault = injector(subject, np.random.default_rng(seed))
        if fault is None:
            continue
        found = outputs_of(fault.stages, subject.samples[:1])
        if found is None or any(not np.array_equal(found[0][n], v) for n, v in subject.outputs[0].items()):  # type: ignore[index]
            return fault
    return None


@pytest.mark.parametrize("number", range(len(CODE_GENERATION + TILING + HOST)))
def test_a_fault_is_put_down_to_its_layer_and_class(number: int) -> None:
    injector = (CODE_GENERATION + TILING + HOST)[number]
    faults = ((subject, _telling(subject, injector)) for subject in map(_subject, SUBJECTS))
    subject, fault = next((subject, fault) for subject, fault in faults if fault is not None)
    found = ProgramCheck(fault.stages).deviations(subject.samples[0])
    assert found, fault.where
    assert (found[0].stage, found[0].local) == (fault.stage, True), fault.where
    assert found[0].node in fault.layers, fault.where


@pytest.mark.slow
def test_nearly_all_of_many_faults_in_all_stages_are_found() -> None:
    outcomes, _ = run(list(subjects()), 200, seed=1)
    assert len(outcomes) == 200
    assert sum(outcome.right for outcome in outcomes) >= 190
