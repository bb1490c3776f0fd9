"""The check before shipping: one model at every stage, on the user's data, against the user's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torq_byoc.accuracy.attribution import layer_deviations
from torq_byoc.accuracy.cause import Cause, cause_of
from torq_byoc.accuracy.deviation import Deviation
from torq_byoc.accuracy.evaluation_data import EvaluationData
from torq_byoc.accuracy.import_check import ImportCheck
from torq_byoc.accuracy.labels import LabelCheck, LabelScores
from torq_byoc.accuracy.layer_check import LayerCheck, LayerRow
from torq_byoc.accuracy.lint import LintFinding, Subject, lint
from torq_byoc.accuracy.output_check import OutputCheck, OutputRow, stacked
from torq_byoc.accuracy.program_check import ProgramCheck
from torq_byoc.accuracy.references.float_reference import FloatReference, OnnxRuntime, PythonReference
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.thresholds import Thresholds
from torq_byoc.accuracy.verdict import Miss, misses
from torq_byoc.errors import AccuracyError
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.output_parts import output_parts
from torq_byoc.quantize.user_metric import Metric, evaluate_metric

LAYER_SAMPLES = 4
"""Samples on which every layer is looked at; outputs are compared on all."""


@dataclass(frozen=True)
class CheckResult:
    """What the check found.

    Attributes:
        model, precision: what was checked.
        samples, layer_samples: how many inferences, and on how many of them every layer was looked at.
        reference: who computed the float model.
        outputs, layers: figures.
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
    count = evaluation.count
    parts = output_parts(stages.prepared)
    reference, notes = _reference(stages, next(iter(evaluation)))
    looked_at = _spread_over(count, layer_samples)
    session = _Session(stages, reference, evaluation.labels, count, keep=metric is not None)
    thresholds.check_names(
        [name for part in parts for name in (part.output, f"{part.output}/{part.name}")],
        [name for layer in session.layers.layers for name in (layer.node, layer.tensor)],
    )
    for index, feed in enumerate(evaluation):
        step(f"sample {index + 1} of {count}")
        session.take(feed, closely=index in looked_at)
    outputs, rows = session.outputs.rows(), session.layers.rows()
    deviations = (*session.import_deviations(), *layer_deviations(rows), *session.deviations)
    scores = session.labels.scores() if session.labels else None
    results = evaluate_metric(metric, stacked(session.wanted), stacked(session.found)) if metric else {}
    _check_metric_names(thresholds, results)
    step("cause")
    cause = cause_of(stages, rows, outputs, deviations, parts, session.close)
    step("lint")
    return CheckResult(
        stages.compiled.facts.model,
        stages.precision,
        count,
        len(looked_at),
        reference.name,
        outputs,
        rows,
        deviations,
        scores,
        results,
        misses(thresholds, outputs, rows, scores, results, deviations),
        cause,
        _lint(stages, [feeds for feeds, _ in session.close], calibration),
        (*notes, *stages.compiled.facts.notes, *stages.compiled.facts.warnings),
    )


class _Session:
    """Everything that takes in samples."""

    def __init__(
        self, stages: Stages, reference: FloatReference, labels: np.ndarray | None, count: int, keep: bool
    ) -> None:
        self._stages, self._reference, self._keep = stages, reference, keep
        self.outputs = OutputCheck(output_parts(stages.prepared))
        self.layers = LayerCheck(stages)
        self.labels = LabelCheck(labels, count) if labels is not None else None
        self._imports = ImportCheck(reference, stages.prepared) if isinstance(reference, OnnxRuntime) else None
        self._programs = ProgramCheck(stages)
        self._first = stages.prepared.graph.output[0].name
        self.deviations: tuple[Deviation, ...] = ()
        self.close: list[tuple[Mapping[str, np.ndarray], Arrays]] = []
        self.wanted: list[Arrays] = []
        self.found: list[Arrays] = []

    def take(self, feeds: Mapping[str, np.ndarray], closely: bool) -> None:
        """Run the float model and the programs, and with ``closely`` every stage between."""
        wanted, found = self._reference.outputs(feeds), self._stages.compiled.run(feeds)
        self.outputs.take(wanted, found)
        if self.labels:
            self.labels.take(wanted[self._first], found[self._first])
        if self._keep:
            self.wanted.append(wanted)
            self.found.append(found)
        if closely:
            self.close.append((feeds, wanted))
            self.layers.take(feeds)
            if self._imports:
                self._imports.take(feeds)
            self.deviations = self.deviations or self._programs.deviations(feeds)

    def import_deviations(self) -> tuple[Deviation, ...]:
        """Where preparation changed results."""
        return self._imports.deviations() if self._imports else ()


def _reference(stages: Stages, feeds: Mapping[str, np.ndarray]) -> tuple[FloatReference, tuple[str, ...]]:
    """Who runs the float model, and what that leaves unchecked."""
    try:
        runtime = OnnxRuntime(stages.original)
        runtime.tensors(feeds)
        return runtime, ()
    except Exception as error:  # noqa: BLE001 - it is optional, and has no base class for what it refuses
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        note = (
            "the float reference is the prepared model in the evaluator of the onnx package, and import is not checked:"
            f" onnxruntime does not run the model as given ({reason})"
        )
        return PythonReference(stages.prepared), (note,)


def _spread_over(count: int, wanted: int) -> tuple[int, ...]:
    """At most so many of ``count`` positions, evenly spread, the first among them."""
    return (
        tuple(sorted({index * count // wanted for index in range(wanted)})) if count > wanted else tuple(range(count))
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


def _lint(
    stages: Stages, feeds: Sequence[Mapping[str, np.ndarray]], calibration: Mapping[str, np.ndarray] | None
) -> tuple[LintFinding, ...]:
    given = tuple(samples(stages.prepared, calibration)) if calibration and stages.precision != "quantized" else ()
    return lint(Subject(stages.prepared, stages.precise, feeds, given))
