"""Quantization as a user gets it: the rewrites that help are found, tried and applied without being asked for.

The plain quantization comes first, and while it looks at the samples, so do the rewrites.  Where none sees a reason,
as with most networks, that is all.  Otherwise candidates are quantized with some of the samples and judged on others,
and a rewrite stays when the outputs come nearer to those of the float model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx

from torq_byoc.errors import QuantizationError, choose_from
from torq_byoc.quantize.choose_ranges import AUTO, SAFE
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.judge import ENOUGH_SQNR, Judge, Score
from torq_byoc.quantize.quantization import quantization_of
from torq_byoc.quantize.quantized import AppliedRewrite, Quantized
from torq_byoc.quantize.rewrites import REWRITES, Candidate, Rewrite
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics

BIAS_CORRECTION = "bias_correction"
"""What ``quantization_of`` does by itself, by the name under which it can be disabled."""
NAMES = (*(rewrite.name for rewrite in REWRITES), BIAS_CORRECTION)
MOST_JUDGED = 4
"""Samples that candidates are judged on."""
MOST_CALIBRATING = 8
"""Samples that give candidates their ranges; what is chosen is quantized with all."""
LEAST_GAIN = 1.0
"""Decibels of merit for which a rewrite is kept: less may be chance."""
MOST_LOSS = 1.0
"""Decibels that any part of the outputs may lose by it."""


def quantize(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray] | None,
    *,
    precision: str = "int8",
    method: str = AUTO,
    disabled: Collection[str] = (),
    progress: Callable[[], None] | None = None,
) -> Quantized:
    """Quantize a prepared float model, rewritten where that helps.

    Args:
        model: as ``frontend.prepare`` returns it.
        calibration: arrays by input name; the first axis counts samples.
        precision: type of activations, "int8" or "int16"; with "int16" no rewrite is tried.
        method: calibrator, see ``quantization_of``; candidates are compared with ranges of all values seen.
        disabled: names of rewrites (``NAMES``) to leave out.
        progress: called after each sample of every calibration.

    Raises:
        CalibrationError: the data does not fit the model, or is missing.
        QuantizationError: an unknown name in ``disabled``, or see ``quantization_of``.
    """
    check_rewrite_names(disabled)
    rounded = partial(
        quantization_of, precision=precision, progress=progress, correct_biases=BIAS_CORRECTION not in disabled
    )
    chosen = [rewrite for rewrite in REWRITES if rewrite.name not in disabled and precision == "int8"]
    statistics = ChannelStatistics(model)
    plain = rounded(model, calibration, method=method, watch=statistics.add if chosen else None)
    if not any(True for rewrite in chosen for _ in rewrite.propose(Candidate(model), statistics)):
        return plain
    search = _Search(model, calibration or {}, partial(rounded, method=SAFE))
    for rewrite in chosen:
        search.attempt(rewrite)
    if not search.applied:
        return plain
    best = rounded(search.best.model, calibration, method=method, floats=search.best.floats)
    return replace(best, rewrites=tuple(search.applied))


def check_rewrite_names(disabled: Collection[str]) -> None:
    """Refuse names of rewrites that do not exist.

    Raises:
        QuantizationError: there is no such rewrite.
    """
    for name in disabled:
        if name not in NAMES:
            raise QuantizationError(
                f"there is no rewrite {name!r}", where="--disable-rewrite", remedy=choose_from(name, sorted(NAMES))
            )


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate, what its tensors hold, and how good it is when it is quantized."""

    candidate: Candidate
    statistics: ChannelStatistics
    score: Score


class _Search:
    """Goes from rewrite to rewrite with the best candidate so far.

    Args:
        model: the float model.
        calibration: all samples.
        rounded: quantizes a model with given samples, some nodes left float, while a function watches.
    """

    def __init__(
        self, model: onnx.ModelProto, calibration: Mapping[str, np.ndarray], rounded: Callable[..., Quantized]
    ) -> None:
        feeds = tuple(samples(model, calibration))
        held_out = min(MOST_JUDGED, len(feeds) // 4)
        self._calibration = _stacked(feeds[: len(feeds) - held_out][:MOST_CALIBRATING])
        self._judge = Judge(model, feeds[-(held_out or MOST_JUDGED) :])
        self._rounded = rounded
        self.applied: list[AppliedRewrite] = []
        self._best = self._tried(Candidate(model))

    @property
    def best(self) -> Candidate:
        """The candidate that every kept rewrite went into."""
        return self._best.candidate

    def attempt(self, rewrite: Rewrite) -> None:
        """Apply a rewrite if it helps, in the last of its ways that is better than the ways before."""
        kept: _Trial | None = None
        for proposal in rewrite.propose(self.best, self._best.statistics):
            trial = self._tried(proposal.candidate)
            before = self._best.score
            if not _is_better(trial.score, before) or (kept and trial.score.merit <= kept.score.merit):
                break
            kept = trial
            applied = AppliedRewrite(rewrite.name, proposal.places, proposal.reason, before.sqnr, trial.score.sqnr)
        if kept:
            self.applied.append(applied)
            self._best = kept

    def _tried(self, candidate: Candidate) -> _Trial:
        statistics = ChannelStatistics(candidate.model)
        quantized = self._rounded(candidate.model, self._calibration, floats=candidate.floats, watch=statistics.add)
        return _Trial(candidate, statistics, self._judge.of(quantized.model))


def _is_better(score: Score, before: Score) -> bool:
    """Whether a candidate is worth its rewrite: better on the whole, and no part much worse."""
    losses = (min(before.parts[key], ENOUGH_SQNR) - score.parts[key] for key in before.parts)
    return score.merit >= before.merit + LEAST_GAIN and max(losses, default=0.0) <= MOST_LOSS


def _stacked(feeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Samples as calibration data: one behind the other along the first axis."""
    return {name: np.concatenate([np.atleast_1d(feed[name]) for feed in feeds]) for name in feeds[0]}
