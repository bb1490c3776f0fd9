"""What a mixed model has to reach, and what it is found to reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from torq_byoc.errors import QuantizationError
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.user_metric import Metric, evaluate_metric

USUAL_SQNR = 40.0
"""Decibels that are asked for where nothing is: one part in a hundred of the outputs' amplitude."""


@dataclass(frozen=True)
class Reached:
    """How good a quantized model is: the worst output part's SQNR in dB and cosine, and the user's metric."""

    sqnr: float
    cosine: float
    metric: float | None = None


@dataclass(frozen=True)
class PrecisionTarget:
    """What to reach; every number that is given counts.

    Attributes:
        sqnr: of the worst output part, in dB.
        cosine: of the worst output part.
        metric: a quality that only the user can measure, one number; more is better.
        least: of the metric.
    """

    sqnr: float | None = None
    cosine: float | None = None
    metric: Metric | None = None
    least: float | None = None

    def __post_init__(self) -> None:
        if (self.metric is None) != (self.least is None):
            raise QuantizationError(
                "a metric and the least value of it go together", where="target", remedy="give both or neither"
            )
        for name, value, low, high in (("SQNR", self.sqnr, 0.0, 200.0), ("cosine", self.cosine, 0.0, 1.0)):
            if value is not None and not low < value < high:
                raise QuantizationError(
                    f"no quantized model reaches a {name} of {value:g}",
                    where="target",
                    why=f"it lies between {low:g} and {high:g}",
                    remedy="give a number in between",
                )

    @classmethod
    def usual(cls) -> PrecisionTarget:
        """Where nothing is asked for."""
        return cls(sqnr=USUAL_SQNR)

    @property
    def noise(self) -> float:
        """Error over signal, as an energy, that the target allows; 0 where a metric decides.

        A small error at a right angle to the signal turns it by the root of noise over signal.
        """
        if self.metric is not None:
            return 0.0
        by_sqnr = math.inf if self.sqnr is None else 10.0 ** (-self.sqnr / 10)
        by_cosine = math.inf if self.cosine is None else 2.0 * (1.0 - self.cosine)
        return min(by_sqnr, by_cosine)

    def met(self, reached: Reached) -> bool:
        """Whether everything asked for is there."""
        wanted = ((self.sqnr, reached.sqnr), (self.cosine, reached.cosine), (self.least, reached.metric))
        return all(least is None or (found is not None and found >= least) for least, found in wanted)

    def halfway_to(self, reached: Reached) -> PrecisionTarget:
        """The target between this one, which is met, and what is reached."""

        def middle(least: float | None, found: float | None) -> float | None:
            return least if least is None or found is None else least + (found - least) / 2

        return replace(
            self,
            sqnr=middle(self.sqnr, reached.sqnr),
            cosine=middle(self.cosine, reached.cosine),
            least=middle(self.least, reached.metric),
        )

    def order(self, reached: Reached) -> tuple[float, float]:
        """What one of two plans has more of when neither meets the target."""
        return (reached.sqnr, 0.0) if reached.metric is None else (reached.metric, reached.sqnr)

    def of(self, judge: Judge, quantized: onnx.ModelProto) -> Reached:
        """How good a QDQ model is on the judge's samples.

        Raises:
            AccuracyError: the metric fails or gives no finite number.
            QuantizationError: it gives more than one.
        """
        evaluator = Float64Evaluator(quantized)
        found = [evaluator.outputs(feed) for feed in judge.feeds]
        score = judge.score(found)
        if self.metric is None:
            return Reached(score.sqnr, score.cosine)
        numbers = evaluate_metric(self.metric, _together(judge.wanted), _together(found))
        if len(numbers) != 1:
            raise QuantizationError(
                "the metric of a target gives several numbers",
                where="metric",
                why=", ".join(numbers),
                remedy="return the one that the target is about",
            )
        return Reached(score.sqnr, score.cosine, *numbers.values())


def _together(runs: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([np.atleast_1d(run[name]) for run in runs]) for name in runs[0]}
