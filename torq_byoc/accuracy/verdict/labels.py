"""Accuracy on labelled data: how often the right class has the highest score, or is among the five highest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.errors import AccuracyError
from torq_byoc.quantize.data import LABELS


@dataclass(frozen=True)
class LabelScores:
    """Parts of the rows, each between 0 and 1.

    Attributes:
        rows: how many were labelled.
        agreement: both give the same answer.
        disagreements: rows whose answer is right in float and wrong on the NPU.
    """

    rows: int
    float_top1: float
    npu_top1: float
    float_top5: float
    npu_top5: float
    agreement: float
    disagreements: tuple[int, ...]

    @property
    def top1_loss(self) -> float:
        """What the NPU loses."""
        return self.float_top1 - self.npu_top1

    @property
    def top5_loss(self) -> float:
        """What the NPU loses."""
        return self.float_top5 - self.npu_top5


class LabelCheck:
    """Compares the first output of both with the labels, sample by sample.

    Args:
        labels: int[rows], a class for every row of the first input array.
        samples: how many inferences these rows make.
        rows: how many of these rows one inference takes.

    Raises:
        AccuracyError: the labels are no classes, or their number is not that of the rows.
    """

    def __init__(self, labels: np.ndarray, samples: int, rows: int) -> None:
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise _unfit(f"they are {labels.dtype}{list(labels.shape)}", "give one integer a row of the input arrays")
        if labels.size != samples * rows:
            raise _unfit(f"{labels.size} labels, {samples * rows} rows", "give one label a row of the input arrays")
        self._labels = labels.reshape(samples, -1)
        self._sample = 0
        self._answers: list[np.ndarray] = []

    def take(self, wanted: np.ndarray, found: np.ndarray) -> None:
        """Take in the first output of both on the next sample.

        Raises:
            AccuracyError: it is not a row of scores a label, or a label is none of its classes.
        """
        labels = self._labels[self._sample]
        rows = [
            values.reshape(labels.size, -1) if values.size % labels.size == 0 else None for values in (wanted, found)
        ]
        if rows[0] is None or rows[1] is None or rows[0].shape[1] < 2:
            raise _unfit(
                f"the first output has the shape {list(wanted.shape)} and {labels.size} labels a sample",
                "label models whose first output has one score a class, or judge it by --metric",
            )
        if labels.min() < 0 or labels.max() >= rows[0].shape[1]:
            raise _unfit(
                f"they reach from {labels.min()} to {labels.max()}, the first output has {rows[0].shape[1]} classes",
                "number the classes from 0",
            )
        ranks = [_ranks(scores, labels) for scores in (rows[0], rows[1])]
        same = rows[0].argmax(axis=1) == rows[1].argmax(axis=1)
        self._answers.append(np.stack([*ranks, same.astype(np.int64)]))
        self._sample += 1

    def scores(self) -> LabelScores:
        """Over all samples so far."""
        ranks, found, same = np.concatenate(self._answers, axis=1)
        wrong = np.flatnonzero((ranks == 0) & (found > 0))
        return LabelScores(
            rows=ranks.size,
            float_top1=float(np.mean(ranks < 1)),
            npu_top1=float(np.mean(found < 1)),
            float_top5=float(np.mean(ranks < 5)),
            npu_top5=float(np.mean(found < 5)),
            agreement=float(np.mean(same)),
            disagreements=tuple(wrong.tolist()),
        )


def _ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For each row how many classes come before the right one; among equal scores the first class does.

    A right class without a number for a score comes last.
    """
    own = np.take_along_axis(scores, labels[:, None].astype(np.int64), axis=1)
    before = np.arange(scores.shape[1])[None] < labels[:, None]
    ranks = np.count_nonzero((scores > own) | ((scores == own) & before), axis=1)
    return np.where(np.isnan(own[:, 0]), scores.shape[1], ranks)


def _unfit(why: str, remedy: str) -> AccuracyError:
    return AccuracyError("the labels do not fit the model", where=LABELS, why=why, remedy=remedy)
