"""Lint: what is wrong with a model or its data, found before any code is generated, all at once.

A rule is a function from a ``Subject`` to findings, or to a ``Watch`` of what the model computes on the samples, in a
file of its own under ``rules``, and one line in ``RULES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.rules.accumulator_bound import accumulator_bound
from torq_byoc.accuracy.lint.rules.bias_overflow import bias_overflow
from torq_byoc.accuracy.lint.rules.bias_scales import bias_scales
from torq_byoc.accuracy.lint.rules.calibration_match import calibration_match
from torq_byoc.accuracy.lint.rules.code_ranges import code_ranges
from torq_byoc.accuracy.lint.rules.concat_ranges import concat_ranges
from torq_byoc.accuracy.lint.rules.data_types import data_types
from torq_byoc.accuracy.lint.rules.dead_weights import dead_weights
from torq_byoc.accuracy.lint.rules.input_form import input_form
from torq_byoc.accuracy.lint.rules.label_shift import label_shift
from torq_byoc.accuracy.lint.rules.multiplier_range import multiplier_range
from torq_byoc.accuracy.lint.rules.non_finite import non_finite
from torq_byoc.accuracy.lint.rules.quantizer_pairs import quantizer_pairs
from torq_byoc.accuracy.lint.rules.weight_codes import weight_codes
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.accuracy.lint.watch import Watch

__all__ = ["RULES", "LintFinding", "Severity", "Subject", "Watch", "lint"]

RULES: dict[str, Callable[[Subject], Iterable[LintFinding] | Watch]] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        non_finite,
        data_types,
        quantizer_pairs,
        bias_scales,
        bias_overflow,
        multiplier_range,
        accumulator_bound,
        concat_ranges,
        dead_weights,
        weight_codes,
        code_ranges,
        calibration_match,
        input_form,
        label_shift,
    )
}
"""Rules by name, in the order in which they are reported."""

_ORDER = list(Severity)


def lint(subject: Subject) -> tuple[LintFinding, ...]:
    """Findings of all rules, errors first.  The model runs once on every sample."""
    made = [rule(subject) for rule in RULES.values()]
    watches = [one for one in made if isinstance(one, Watch)]
    for feed in subject.evaluation:
        tensors = {**feed, **subject.evaluator.tensors(feed)}
        for watch in watches:
            watch.take(tensors)
    found = [finding for one in made for finding in (one.findings() if isinstance(one, Watch) else one)]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))
