"""Causes that lie before any stage: a model or data that are wrong as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torq_byoc.accuracy.causes.evidence import Cause, Evidence
from torq_byoc.accuracy.causes.remedies import (
    ANOTHER_RANGE,
    CARRIES_SCALES,
    is_in_another_range,
    other_data,
    source_of_ranges,
)
from torq_byoc.accuracy.causes.what_if import own_error
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.layers import INPUT
from torq_byoc.accuracy.lint import LintFinding, Severity
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.verdict.output_check import OutputRow

BAD = 20.0
"""Decibels below which an output is bad enough for data in another range to be why."""
NOT_FINITE, FORM = "non-finite", "input-form"
"""Rules whose findings say more than figures do."""


def cause_as_given(stages: Stages, evidence: Evidence, target: OutputRow) -> Cause | None:
    """What is wrong with model or data themselves; None where nothing is that could explain the worst output.

    Args:
        stages: of the model.
        evidence: what was found.
        target: the worst output part.
    """
    errors = [finding for finding in evidence.lint if finding.severity is Severity.ERROR]
    bad = target.lost or target.not_numbers > 0 or target.figures.sqnr < BAD
    outside = _outside(stages, evidence) if bad else None
    if outside:
        return outside
    # Beside its float model a bad output shows the layer itself, and ``with_findings`` adds what is said of it.
    shown = bad and stages.float_model is not None
    return _of_finding(errors[0]) if errors and not shown else None


def cause_without_numbers(lint: Sequence[LintFinding]) -> Cause | None:
    """Where values stop being numbers: whatever is found behind that, its figures say nothing."""
    errors = (one for one in lint if one.severity is Severity.ERROR and one.rule == NOT_FINITE)
    return next(map(_of_finding, errors), None)


def with_findings(cause: Cause | None, lint: Sequence[LintFinding]) -> Cause | None:
    """A cause with what the lint says of its layer; of another place when that is an error."""
    if cause is None:
        return None
    own = [one for one in lint if one.severity is not Severity.NOTE and _is_about(one, cause)]
    own += [one for one in lint if one.severity is Severity.ERROR]
    return replace(cause, remedy=f"{own[0].remedy} ({own[0].where}: {own[0].what})") if own else cause


def _is_about(finding: LintFinding, cause: Cause) -> bool:
    node, _, rest = finding.where.partition(", ")
    return node == cause.node or rest == f"tensor {cause.tensor}"


def _of_finding(finding: LintFinding) -> Cause:
    return Cause(Stage.GIVEN, finding.where, "", finding.what, "", finding.remedy)


def _outside(stages: Stages, evidence: Evidence) -> Cause | None:
    """An input that lies where its scale or the calibration data does not reach."""
    for row in evidence.rows:
        if is_in_another_range(row) and own_error(row) < BAD:
            assert row.use is not None
            whose = source_of_ranges(CARRIES_SCALES if stages.carries_scales else stages.precision)
            return _of_input(row.layer.tensor, row.use.saturated, whose, evidence)
    stored = {row.layer.tensor for row in evidence.rows if row.layer.op == INPUT}  # whose own scale says it better
    for name, share in evidence.outside.items():
        if share > ANOTHER_RANGE and name not in stored:
            return _of_input(name, share, "the calibration data", evidence)
    return None


def _of_input(name: str, share: float, whose: str, evidence: Evidence) -> Cause:
    fact = f"{share:.2%} of the input {name} lie outside the range of {whose}"
    forms = [one.what for one in evidence.lint if one.rule == FORM and one.where == f"input {name}"]
    hint = f"; {forms[0]}" if forms else ""
    return Cause(Stage.GIVEN, name, name, fact, "", f"{other_data(name, share, whose)}{hint}")
