"""Top-1 and top-5 by hand."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.accuracy.verdict.labels import LabelCheck
from torq_byoc.errors import AccuracyError


def _scores(labels: list[int], wanted: np.ndarray, found: np.ndarray):
    check = LabelCheck(np.array(labels), len(wanted), len(labels) // len(wanted))
    for one, other in zip(wanted, found, strict=True):
        check.take(one, other)
    return check.scores()


def test_ranks_and_agreement():
    wanted = np.eye(8)[None, [0, 1, 2, 3]].reshape(4, 1, 8) * 10 + np.arange(8)[::-1]
    found = wanted.copy()
    found[1, 0, 2] = 100  # right in float, second on the NPU
    found[3, 0] = np.arange(8)  # the right one is fifth
    scores = _scores([0, 1, 2, 3], wanted, found)
    assert (scores.float_top1, scores.npu_top1) == (1.0, 0.5)
    assert (scores.float_top5, scores.npu_top5) == (1.0, 1.0)
    assert scores.agreement == 0.5 and scores.disagreements == (1, 3)
    assert (scores.top1_loss, scores.top5_loss) == (0.5, 0.0)


def test_among_equal_scores_the_first_class_wins_as_argmax_has_it():
    tie = np.array([[1.0, 1.0, 0.0]])
    assert _scores([0, 1], np.stack([tie, tie]), np.stack([tie, tie])).npu_top1 == 0.5


def test_rows_of_a_batch():
    rows = np.array([[[0.0, 1.0], [1.0, 0.0], [3.0, 2.0]]])
    scores = _scores([1, 0, 1], rows, rows[:, :, ::-1])
    assert (scores.rows, scores.float_top1, scores.npu_top1) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("labels", "samples"),
    [
        (np.array([0, 1, 2]), 2),
        (np.array([0, 1, 2, 3]), 2),
        (np.array([0.5, 1.0]), 2),
        (np.array([[0], [1]]), 2),
        (np.zeros(0, np.int64), 2),
    ],
)
def test_labels_that_are_none(labels, samples):
    with pytest.raises(AccuracyError):
        LabelCheck(labels, samples, 1)


@pytest.mark.parametrize(
    ("label", "shape"), [(4, (1, 4)), (-1, (1, 4)), (0, (1, 1)), (0, ())], ids=["beyond", "negative", "one", "scalar"]
)
def test_outputs_that_have_no_such_class(label, shape):
    with pytest.raises(AccuracyError):
        LabelCheck(np.array([label]), 1, 1).take(np.zeros(shape), np.zeros(shape))


def test_scores_that_are_not_numbers_are_wrong():
    rows = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    scores = _scores([0, 1], rows, np.full_like(rows, np.nan))
    assert (scores.float_top1, scores.npu_top1) == (1.0, 0.0)
