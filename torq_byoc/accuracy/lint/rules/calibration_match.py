"""Evaluation data unlike the data that the ranges come from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject

MOST_OUTSIDE = 0.001
"""Share of evaluation values beyond the calibrated range that clipping hides."""
MOST_SHIFT = 1.0
"""Distance of the means, in standard deviations of the calibration data."""
SPREADS = (0.5, 2.0)
"""Ratio of the standard deviations."""


def calibration_match(subject: Subject) -> Iterator[LintFinding]:
    """Range, mean and spread of every float input, evaluation against calibration."""
    for name, known, new in _float_inputs(subject):
        complaint = _complaint(known, new)
        if complaint:
            yield LintFinding(
                "calibration-match",
                Severity.WARNING,
                f"input {name}",
                complaint,
                "calibrate with samples of what the model will see, prepared by the same code",
            )


def outside_calibration(subject: Subject) -> dict[str, float]:
    """Part of the evaluation values that lie outside the calibration data's range, by float input."""
    return {name: _outside(known, new) for name, known, new in _float_inputs(subject)}


def _float_inputs(subject: Subject) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, calibration values and evaluation values of every float input; none without data of both kinds."""
    if not subject.calibration or not subject.evaluation:
        return
    for value in subject.prepared.graph.input:
        known = np.concatenate([np.ravel(feed[value.name]) for feed in subject.calibration]).astype(np.float64)
        new = np.concatenate([np.ravel(feed[value.name]) for feed in subject.evaluation]).astype(np.float64)
        if known.size and subject.calibration[0][value.name].dtype.kind == "f":
            yield value.name, known, new


def _outside(known: np.ndarray, new: np.ndarray) -> float:
    return float(np.mean((new < known.min()) | (new > known.max())))


def _complaint(known: np.ndarray, new: np.ndarray) -> str:
    outside = _outside(known, new)
    spread = float(known.std())
    facts = (
        f"calibration {known.mean():.3g} +- {spread:.3g} in {known.min():.3g} .. {known.max():.3g},"
        f" evaluation {new.mean():.3g} +- {new.std():.3g} in {new.min():.3g} .. {new.max():.3g}"
    )
    if outside > MOST_OUTSIDE:
        return f"{outside:.2%} of the evaluation values lie outside the calibrated range: {facts}"
    if spread and abs(new.mean() - known.mean()) > MOST_SHIFT * spread:
        return f"the evaluation data has another mean than the calibration data: {facts}"
    if spread and not SPREADS[0] <= new.std() / spread <= SPREADS[1]:
        return f"the evaluation data has another spread than the calibration data: {facts}"
    return ""
