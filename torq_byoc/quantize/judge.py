"""How good a quantized form of a model is, measured on data.

Every choice of the quantizer (a range, a rewrite, a wider type) is judged here and nowhere else: by the output of the
whole model, part by part, against the float model on the same samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.quantize.evaluation.distance import cosine, sqnr
from torq_byoc.quantize.evaluation.evaluator import Arrays, Evaluator
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.output_parts import OutputPart, output_parts

ENOUGH_SQNR = 80.0
"""Decibels of a part beyond which more gains nothing: a ten-thousandth of its amplitude."""


@dataclass(frozen=True)
class Score:
    """Agreement with the float model.

    Attributes:
        parts: SQNR of every output part over all samples together, in dB, by (output, part).
        cosines: their cosines.
    """

    parts: Mapping[tuple[str, str], float]
    cosines: Mapping[tuple[str, str], float]

    @property
    def sqnr(self) -> float:
        """The worst part's SQNR in dB: a model is as good as its worst part."""
        return min(self.parts.values(), default=ENOUGH_SQNR)

    @property
    def cosine(self) -> float:
        """The worst part's cosine."""
        return min(self.cosines.values(), default=1.0)

    def of(self, parts: Iterable[OutputPart]) -> Score:
        """The same for some of the parts."""
        keys = [(part.output, part.name) for part in parts]
        return Score({key: self.parts[key] for key in keys}, {key: self.cosines[key] for key in keys})

    @property
    def merit(self) -> float:
        """One number to compare candidates by: the mean over parts of the SQNR in dB, each at most ``ENOUGH_SQNR``."""
        return float(np.mean([min(value, ENOUGH_SQNR) for value in self.parts.values()])) if self.parts else 0.0


class Judge:
    """Compares quantized forms of one float model with it, on fixed samples.

    Args:
        model: the prepared float model.
        feeds: the samples.
        parts: the parts of its outputs, where they are known already.
    """

    def __init__(
        self, model: onnx.ModelProto, feeds: Iterable[Mapping[str, np.ndarray]], parts: Iterable[OutputPart] = ()
    ) -> None:
        self.feeds = tuple(dict(feed) for feed in feeds)
        self.parts = tuple(parts) or output_parts(model)
        evaluator = Evaluator(model)
        self.wanted: tuple[Arrays, ...] = tuple(evaluator.outputs(feed) for feed in self.feeds)

    def of(self, quantized: onnx.ModelProto) -> Score:
        """The score of a QDQ model with the float model's inputs and outputs, its arithmetic taken in float64."""
        evaluator = Float64Evaluator(quantized)
        return self.score([evaluator.outputs(feed) for feed in self.feeds])

    def typical(self, quantized: onnx.ModelProto, parts: Sequence[OutputPart] = ()) -> Score:
        """As ``of``, but for every part, or some parts, the median of what single samples score.

        Over all samples together one decides that has a value far out of range, if it is among them.
        """
        evaluator = Float64Evaluator(quantized)
        scores = [
            _score(parts or self.parts, [wanted], [evaluator.outputs(feed)])
            for feed, wanted in zip(self.feeds, self.wanted, strict=True)
        ]

        def median(found: Sequence[Mapping[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
            return {key: float(np.median([each[key] for each in found])) for key in found[0]}

        return Score(median([each.parts for each in scores]), median([each.cosines for each in scores]))

    def score(self, found: Iterable[Mapping[str, np.ndarray]]) -> Score:
        """The score of given outputs, one mapping a sample."""
        return _score(self.parts, self.wanted, list(found))


def _score(parts: Iterable[OutputPart], wanted: Sequence[Arrays], found: Sequence[Mapping[str, np.ndarray]]) -> Score:
    pairs = {
        (part.output, part.name): (
            np.concatenate([part.of(run[part.output]).reshape(-1) for run in wanted]),
            np.concatenate([part.of(run[part.output]).reshape(-1) for run in found]),
        )
        for part in parts
    }
    return Score({key: sqnr(*pair) for key, pair in pairs.items()}, {key: cosine(*pair) for key, pair in pairs.items()})
