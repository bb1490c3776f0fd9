"""Labels that count classes from another number than the model does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject

SHIFTS = {1: "larger", -1: "smaller"}
MORE_RIGHT = 0.3
"""Part of the samples that a shift must put right beside those that are right as they are."""
MOSTLY = 0.5
"""Part of the samples that must be right with it."""


def label_shift(subject: Subject) -> Iterator[LintFinding]:
    """Top-1 of the float model with every label one larger or smaller, such as with a class for the background."""
    if subject.labels is None or not len(subject.labels) == len(subject.evaluation) > 0:
        return
    labels = np.ravel(subject.labels).astype(np.int64)
    answers = subject.answers(subject.evaluation)
    now = float(np.mean(answers == labels))
    best, shift = max((float(np.mean(answers == labels + shift)), shift) for shift in SHIFTS)
    if best >= max(now + MORE_RIGHT, MOSTLY):
        yield LintFinding(
            "label-shift",
            Severity.WARNING,
            "labels",
            f"{best:.1%} of {len(labels)} samples are right if every label is one {SHIFTS[shift]}, {now:.1%} as it is",
            "count the classes as the model does, from 0, with the background among them if it has one",
        )
