"""Lint: what is wrong with a model or its data, found before any code is generated, all at once.

A rule is a function from a ``Subject`` to findings, in a file of its own under ``rules``, and one line in ``RULES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.rules.accumulator_bound import accumulator_bound
from torq_byoc.accuracy.lint.rules.bias_overflow import bias_overflow
from torq_byoc.accuracy.lint.rules.calibration_match import calibration_match
from torq_byoc.accuracy.lint.rules.concat_ranges import concat_ranges
from torq_byoc.accuracy.lint.rules.data_types import data_types
from torq_byoc.accuracy.lint.rules.dead_weights import dead_weights
from torq_byoc.accuracy.lint.rules.input_form import input_form
from torq_byoc.accuracy.lint.rules.multiplier_range import multiplier_range
from torq_byoc.accuracy.lint.rules.non_finite import non_finite
from torq_byoc.accuracy.lint.subject import Subject

__all__ = ["RULES", "LintFinding", "Severity", "Subject", "lint"]

RULES: dict[str, Callable[[Subject], Iterable[LintFinding]]] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        non_finite,
        data_types,
        bias_overflow,
        multiplier_range,
        accumulator_bound,
        concat_ranges,
        dead_weights,
        calibration_match,
        input_form,
    )
}
"""Rules by name, in the order in which they are reported."""

_ORDER = list(Severity)


def lint(subject: Subject) -> tuple[LintFinding, ...]:
    """Findings of all rules, errors first."""
    found = [finding for rule in RULES.values() for finding in rule(subject)]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))
