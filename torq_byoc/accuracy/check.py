"""The check before shipping: one model at every stage, on the user's data, against the user's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torq_byoc.accuracy.causes.cause import cause_of
from torq_byoc.accuracy.causes.evidence import Cause, Evidence
from torq_byoc.accuracy.deviation import Deviation
from torq_byoc.accuracy.evaluation_data import EvaluationData
from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.lint import RULES, LintFinding, Subject, lint
from torq_byoc.accuracy.lint.rules.calibration_match import outside_calibration
from torq_byoc.accuracy.scope import Scope, scope_of
from torq_byoc.accuracy.session import Session
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.verdict.labels import LabelScores
from torq_byoc.accuracy.verdict.output_check import OutputRow, stacked
from torq_byoc.accuracy.verdict.target_verdict import target_misses
from torq_byoc.accuracy.verdict.thresholds import Thresholds
from torq_byoc.accuracy.verdict.verdict import Miss, misses
from torq_byoc.errors import AccuracyError
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.user_metric import Metric, evaluate_metric

LAYER_SAMPLES = 4
"""Samples on which every layer is looked at; outputs are compared on all."""
LINT_SAMPLES = 16
"""Samples that lint looks at, evenly spread: the model runs on each, which takes less than to simulate it there."""
LOW_TOP1 = 0.7
"""Part of the labels that a float model has right below which its data may be in another form than it wants."""


@dataclass(frozen=True)
class CheckResult:
    """What the check found.

    Attributes:
        model, precision: what was checked.
        samples, layer_samples: how many inferences, and on how many of them every layer was looked at.
        worst_sample: number of the one of the latter that shows most: a wrong program, else the worst outputs.
        scope: what the results are held against, and what that proves.
        reference: who computed that.
        outputs, layers: figures; no outputs where the programs are refused before they run.
        deviations: errors by stage and layer.
        labels: accuracy; None without labels.
        metric: results of the user's metric by name.
        misses: thresholds that are not reached; none means that the model may be shipped.
        cause: the layer that is worst, and the cure; None for a model without layers.
        lint: what is wrong with model and data before any code is generated.
        notes: what was assumed or left out, as sentences.
    """

    model: str
    precision: str
    samples: int
    layer_samples: int
    worst_sample: int
    scope: Scope
    reference: str
    outputs: tuple[OutputRow, ...]
    layers: tuple[LayerRow, ...]
    deviations: tuple[Deviation, ...]
    labels: LabelScores | None
    metric: Mapping[str, float]
    misses: tuple[Miss, ...]
    cause: Cause | None
    lint: tuple[LintFinding, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every threshold is reached."""
        return not self.misses


def check(
    stages: Stages,
    data: str | Path | Mapping[str, np.ndarray],
    *,
    calibration: Mapping[str, np.ndarray] | None = None,
    thresholds: Thresholds | None = None,
    metric: Metric | None = None,
    layer_samples: int = LAYER_SAMPLES,
    step: Callable[[str], None] = lambda _: None,
) -> CheckResult:
    """Check a model.

    Args:
        stages: of the model.
        data: arrays by input name whose first axis counts samples, an npz file of them, or a folder of one npz a
            sample; "labels" may hold the classes.
        calibration: what the ranges come from, for the lint.
        thresholds: limits; the defaults of ``Thresholds`` without.
        metric: the user's own quality, of the outputs of both over all samples.
        layer_samples: on how many samples every layer is looked at, spread over the data.
        step: called before each sample with what is done.

    Raises:
        CalibrationError: the data does not fit the model.
        AccuracyError: labels, thresholds or metric do not fit the model.
    """
    thresholds = thresholds or Thresholds()
    evaluation = EvaluationData(stages.prepared, data)
    session = Session(stages, evaluation, layer_samples, keep_outputs=metric is not None)
    _check_names(thresholds, session)
    _check_labels(thresholds, session)
    session.run(step)
    ran = session.refused is None
    results = evaluate_metric(metric, stacked(session.wanted), stacked(session.found)) if metric and ran else {}
    if ran:
        _check_metric_names(thresholds, results)
    outputs = session.outputs.rows() if ran else ()
    scores = session.labels.scores() if session.labels and ran else None
    rows, deviations = session.layers.rows(), session.deviations()
    step("lint")
    subject = _subject(stages, evaluation, scores, calibration)
    findings = lint(subject)
    step("cause")
    evidence = Evidence(
        rows,
        outputs,
        deviations,
        [finding for finding in findings if finding.rule not in thresholds.lint.accept],
        outside_calibration(subject),
        session.parts,
        session.close,
        session.layers.wanted,
    )
    facts = stages.compiled.facts
    return CheckResult(
        model=facts.model,
        precision=stages.precision,
        samples=evaluation.count,
        layer_samples=len(session.close),
        worst_sample=session.worst,
        scope=scope_of(stages),
        reference=session.reference.name,
        outputs=outputs,
        layers=rows,
        deviations=deviations,
        labels=scores,
        metric=results,
        misses=(
            *misses(thresholds, outputs, rows, scores, results, deviations, findings),
            *target_misses(stages.options.target if stages.precision == "mixed" else None, stages.planned, outputs),
        ),
        cause=cause_of(stages, evidence),
        lint=findings,
        notes=(*session.notes, *session.remarks(), *facts.notes, *facts.warnings),
    )


def _check_names(thresholds: Thresholds, session: Session) -> None:
    thresholds.check_names(
        [name for part in session.parts for name in (part.output, f"{part.output}/{part.name}")],
        [name for layer in session.layers.layers for name in (layer.node, layer.tensor)],
        RULES,
    )


def _check_labels(thresholds: Thresholds, session: Session) -> None:
    if thresholds.labels.min_top1 is not None and session.labels is None:
        raise AccuracyError(
            "the thresholds have a limit for labelled data, and the data has no labels",
            where="labels.min_top1",
            remedy="put an array `labels` into the data, one integer a row, or take the limit out",
        )


def _check_metric_names(thresholds: Thresholds, results: Mapping[str, float]) -> None:
    unknown = sorted(set(thresholds.metric) - set(results))
    if unknown:
        raise AccuracyError(
            f"the thresholds name a result that the metric does not have: {unknown[0]!r}",
            where="metric",
            why=f"its results are {', '.join(results)}" if results else "no metric is given",
            remedy="name a result of the metric, or give --metric FILE.py:function",
        )


def _subject(
    stages: Stages, evaluation: EvaluationData, scores: LabelScores | None, calibration: Mapping[str, np.ndarray] | None
) -> Subject:
    """What the lint looks at.

    Labels are where the float model fails them: only then can the form of the data be why.
    """
    given = tuple(samples(stages.prepared, calibration)) if calibration and not stages.carries_scales else ()
    chosen = evaluation.spread(LINT_SAMPLES)
    feeds = tuple(feed for number, feed in enumerate(evaluation) if number in chosen)
    fails = scores is not None and scores.float_top1 < LOW_TOP1 and evaluation.rows == 1
    labels = evaluation.labels[list(chosen)] if fails and evaluation.labels is not None else None
    return Subject(stages.prepared, stages.precise, feeds, given, labels)
