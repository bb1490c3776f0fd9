"""Which rewrites of a float model help: each is tried, and stays when the outputs come nearer to those of the model.

Where only types of numbers change, it also stays when the tensors come nearer that small outputs are made of
(``witnesses``): what such outputs gain or lose on a few samples is often chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.quantize.data import samples
from torq_byoc.quantize.judge import ENOUGH_SQNR, Judge, Score
from torq_byoc.quantize.output_parts import output_parts
from torq_byoc.quantize.quantized import AppliedRewrite, Quantized
from torq_byoc.quantize.rewrites import Candidate, Rewrite, anywhere
from torq_byoc.quantize.rewrites.candidate import LEAST_GAIN
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.replay import divided
from torq_byoc.quantize.witnesses import judged_parts, with_outputs

MOST_LOSS = 1.0
"""Decibels that any part of the outputs may lose by it."""


def have_reason(rewrites: Iterable[Rewrite], model: onnx.ModelProto, statistics: ChannelStatistics) -> bool:
    """Whether anything on the samples speaks for any of some rewrites of a prepared float model."""
    proposals = (rewrite.propose(Candidate(model), statistics, anywhere) for rewrite in rewrites)
    return any(True for found in proposals for _ in found)


def search_rewrites(
    rewrites: Iterable[Rewrite],
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray],
    rounded: Callable[..., Quantized],
) -> tuple[Candidate, tuple[AppliedRewrite, ...]]:
    """The model with the rewrites that help, and which these are.

    Args:
        rewrites: to be tried, in order.
        model: a prepared float model.
        calibration: all samples.
        rounded: quantizes a candidate with given samples while a function watches.
    """
    search = _Search(model, calibration, rounded)
    for rewrite in rewrites:
        search.attempt(rewrite)
    return search.best, tuple(search.applied)


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate and its quantized form.

    Attributes:
        candidate: the candidate.
        statistics: what its tensors hold.
        score: of its outputs.
        inner: of large outputs, and of the witnesses of small ones; None where the candidate has other tensors.
    """

    candidate: Candidate
    statistics: ChannelStatistics
    score: Score
    inner: Score | None

    def is_better(self, before: _Trial, least_gain: float) -> bool:
        """Whether the candidate is worth its rewrite."""
        if _is_better(self.score, before.score, least_gain):
            return True
        if self.inner is None or before.inner is None:
            return False
        return _is_better(self.inner, before.inner, least_gain)


class _Search:
    """Goes from rewrite to rewrite with the best candidate so far (see ``search_rewrites``)."""

    def __init__(
        self, model: onnx.ModelProto, calibration: Mapping[str, np.ndarray], rounded: Callable[..., Quantized]
    ) -> None:
        feeds = tuple(samples(model, calibration))
        calibrating, judged = divided(model, feeds)
        self._calibration = _stacked(calibrating)
        self._rounded = rounded
        self._model = model
        self.applied: list[AppliedRewrite] = []
        plain, statistics = self._quantized(Candidate(model))
        self._outputs = output_parts(model)
        self._inner = judged_parts(model, {name: tensor.elements for name, tensor in plain.table.tensors.items()})
        parts = {(part.output, part.name): part for part in (*self._outputs, *self._inner)}
        shown = with_outputs(model, (part.output for part in self._inner))
        self._judge = Judge(shown, judged, parts.values())
        self._best = self._judged(Candidate(model), plain, statistics)

    @property
    def best(self) -> Candidate:
        """The candidate that every kept rewrite went into."""
        return self._best.candidate

    def attempt(self, rewrite: Rewrite) -> None:
        """Apply a rewrite if it helps, in the last of its ways that is better than the ways before."""
        if self._best.score.merit + LEAST_GAIN > ENOUGH_SQNR:
            return  # nothing could gain enough
        kept: _Trial | None = None
        for proposal in rewrite.propose(self.best, self._best.statistics, anywhere):
            trial = self._tried(proposal.candidate)
            before = self._best.score
            helps = trial.is_better(self._best, proposal.least_gain)
            if not helps or (kept and trial.score.merit <= kept.score.merit):
                break
            kept = trial
            applied = AppliedRewrite(
                rewrite.name, proposal.places, proposal.reason, before.sqnr, trial.score.sqnr, proposal.strength
            )
        if kept:
            self.applied.append(applied)
            self._best = kept

    def _tried(self, candidate: Candidate) -> _Trial:
        return self._judged(candidate, *self._quantized(candidate))

    def _quantized(self, candidate: Candidate) -> tuple[Quantized, ChannelStatistics]:
        statistics = ChannelStatistics(candidate.model)
        quantized = self._rounded(
            candidate.model,
            self._calibration,
            floats=candidate.floats,
            methods=candidate.methods,
            wide=candidate.wide,
            watch=statistics.add,
        )
        return quantized, statistics

    def _judged(self, candidate: Candidate, quantized: Quantized, statistics: ChannelStatistics) -> _Trial:
        if candidate.model is not self._model:
            return _Trial(candidate, statistics, self._judge.typical(quantized.model, self._outputs), None)
        score = self._judge.typical(with_outputs(quantized.model, (part.output for part in self._inner)))
        return _Trial(candidate, statistics, score.of(self._outputs), score.of(self._inner))


def _is_better(score: Score, before: Score, least_gain: float) -> bool:
    """Whether a candidate is worth its rewrite: better on the whole, and no part much worse."""
    losses = (min(before.parts[key], ENOUGH_SQNR) - score.parts[key] for key in before.parts)
    return score.merit >= before.merit + least_gain and max(losses, default=0.0) <= MOST_LOSS


def _stacked(feeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Samples as calibration data: one behind the other along the first axis."""
    return {name: np.concatenate([np.atleast_1d(feed[name]) for feed in feeds]) for name in feeds[0]}
