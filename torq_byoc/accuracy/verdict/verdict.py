"""Whether a model may be shipped: measured figures against thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.lint import LintFinding, Severity
from torq_byoc.accuracy.verdict.labels import LabelScores
from torq_byoc.accuracy.verdict.output_check import OutputRow
from torq_byoc.accuracy.verdict.thresholds import LabelLimits, LintLimits, MetricLimits, Thresholds

Limit = tuple[str, float | None, float | None]
"""Name, measured value, limit; None where there is no value or no limit."""


@dataclass(frozen=True)
class Miss:
    """A threshold that is not reached.

    Attributes:
        section: of the thresholds file; "program" for a defect, "target" for that of mixed precision.
        where: output, part, layer or result of the metric.
        what: name of the limit, of the rule, or of the stage.
        value, limit: figures; None for what has none.
        sentence: the same in words.
    """

    section: str
    where: str
    what: str
    value: float | None
    limit: float | None
    sentence: str


def misses(
    thresholds: Thresholds,
    outputs: Iterable[OutputRow],
    layers: Iterable[LayerRow],
    labels: LabelScores | None,
    metric: Mapping[str, float],
    deviations: Iterable[Deviation],
    lint: Iterable[LintFinding],
) -> tuple[Miss, ...]:
    """All that is missed: defects, errors of the model itself, then in the order of the arguments."""
    return (
        *_defects(deviations),
        *_lint_misses(thresholds.lint, lint),
        *_output_misses(thresholds, outputs),
        *_layer_misses(thresholds, layers),
        *(_label_misses(thresholds.labels, labels) if labels else ()),
        *_metric_misses(thresholds.metric, metric),
    )


def is_defect(deviation: Deviation) -> bool:
    """Whether something is wrong that no data and no precision can excuse."""
    return deviation.stage is not Stage.QUANTIZATION


def _defects(deviations: Iterable[Deviation]) -> Iterator[Miss]:
    """The first one: what comes after it may be no more than its consequence."""
    found = sorted(filter(is_defect, deviations), key=lambda one: not one.local)
    for deviation in found[:1]:
        sentence = f"{deviation.stage}: {deviation.node}: {deviation.detail}"
        yield Miss("program", deviation.node, str(deviation.stage), None, None, sentence)


def _lint_misses(limits: LintLimits, findings: Iterable[LintFinding]) -> Iterator[Miss]:
    for finding in findings:
        if finding.severity is Severity.ERROR and finding.rule not in limits.accept:
            yield Miss("lint", finding.where, finding.rule, None, None, f"{finding.where}: {finding.what}")


def _output_misses(thresholds: Thresholds, rows: Iterable[OutputRow]) -> Iterator[Miss]:
    for row in rows:
        where = row.output if row.part == row.output else f"{row.output}/{row.part}"
        if row.lost:
            yield Miss("outputs", where, "lost", None, None, f"{where} is one constant on the NPU, and none in float")
        if row.not_numbers:
            values = f"{row.not_numbers} of {row.figures.elements} values"
            yield Miss("outputs", where, "not_numbers", row.not_numbers, 0, f"{where}: {values} are NaN on the NPU")
        limits, figures = thresholds.outputs.of(row.output, row.part), row.figures
        low = (
            ("min_cosine", figures.cosine, limits.min_cosine),
            ("min_sqnr", figures.sqnr, limits.min_sqnr),
            ("min_agreement", row.agreement, limits.min_agreement),
        )
        yield from _missed("outputs", where, low, (("max_error", figures.max_error, limits.max_error),))


def _layer_misses(thresholds: Thresholds, rows: Iterable[LayerRow]) -> Iterator[Miss]:
    for row in rows:
        limits = thresholds.layers.of(row.layer.node, row.layer.tensor)
        low = (
            ("min_cosine", row.overall.cosine, limits.min_cosine),
            ("min_sqnr", row.overall.sqnr, limits.min_sqnr),
            ("min_local_sqnr", row.local.sqnr, limits.min_local_sqnr),
        )
        saturated = row.use.saturated if row.use else None
        yield from _missed("layers", row.layer.tensor, low, (("max_saturated", saturated, limits.max_saturated),))


def _label_misses(limits: LabelLimits, scores: LabelScores) -> Iterator[Miss]:
    low = (("min_top1", scores.npu_top1, limits.min_top1),)
    high = (
        ("max_top1_loss", scores.top1_loss, limits.max_top1_loss),
        ("max_top5_loss", scores.top5_loss, limits.max_top5_loss),
    )
    yield from _missed("labels", "labels", low, high)


def _metric_misses(limits: Mapping[str, MetricLimits], results: Mapping[str, float]) -> Iterator[Miss]:
    for name, value in results.items():
        own = limits.get(name, MetricLimits())
        yield from _missed("metric", name, (("min", value, own.min),), (("max", value, own.max),))


def _missed(section: str, where: str, low: Iterable[Limit], high: Iterable[Limit]) -> Iterator[Miss]:
    for name, value, limit in low:
        if value is not None and limit is not None and not value >= limit:
            sentence = f"{where}: {_words(name)} {value:.5g}, at least {limit:g} wanted"
            yield Miss(section, where, name, value, limit, sentence)
    for name, value, limit in high:
        if value is not None and limit is not None and not value <= limit:
            sentence = f"{where}: {_words(name)} {value:.5g}, at most {limit:g} wanted"
            yield Miss(section, where, name, value, limit, sentence)


def _words(name: str) -> str:
    plain = name.removeprefix("min_").removeprefix("max_").replace("_", " ")
    return {"sqnr": "SQNR", "local sqnr": "local SQNR", "min": "value", "max": "value"}.get(plain, plain)
