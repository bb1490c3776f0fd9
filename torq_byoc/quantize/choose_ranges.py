"""Which calibration method every tensor's range comes from, decided by the error of the model's outputs.

Beginning with the extremes everywhere, whole-model trials on a few samples decide whether the tensors that other ranges
should serve better take these: all at once, then by halves in the order of what the ranges are expected to gain, as far
as the budget of trials goes.  On held-out samples the outcome has then to do at least as well as the extremes;
otherwise an earlier state, and at last the extremes, stay.  Without held-out samples they stay at once: what the few
samples cut off may be common.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.quantize.calibration_table import FEWEST_SAMPLES, CalibrationTable
from torq_byoc.quantize.evaluation.adjustable import AdjustableEvaluator
from torq_byoc.quantize.judge import ENOUGH_SQNR, Judge, Score
from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.witnesses import judged_parts, with_outputs

AUTO = "auto"
"""The calibration method that is the best of several for each tensor."""
SAFE = "minmax"
"""The method that every choice is measured against."""
ROOMY = "headroom"
"""The method of tensors with codes to spare."""
ALTERNATIVES = ("mse", "percentile")
"""Methods that a tensor may take instead, the one expected to be best first."""
LEAST_GAIN = 0.5
"""Decibels by which a tensor's own error must be expected to fall for it to be tried."""
LEAST_MERIT = 0.25
"""Decibels that a trial must gain."""
MOST_SAMPLES = 4
_SAMPLES_A_SAMPLE = 4
"""Calibration samples for each that trials run on, at most ``MOST_SAMPLES``, ..."""
_SAMPLES_A_TRIAL = 4
"""... and for each run of a trial on a sample."""
_FEWEST_TRIALS, _MOST_TRIALS = 3, 12

Feed = Mapping[str, np.ndarray]
Methods = dict[str, str]


@dataclass(frozen=True)
class RangeChoice:
    """Ranges of all tensors.

    Attributes:
        ranges: by tensor.
        methods: the method of each.
        gain: decibels of merit over the extremes everywhere, on the samples that the outcome was tried on.
    """

    ranges: Mapping[str, Range]
    methods: Mapping[str, str]
    gain: float


def uniform_choice(table: CalibrationTable, method: str, own: Mapping[str, str] | None = None) -> RangeChoice:
    """One method's ranges for all tensors but those that have a method of their own."""
    methods = {**dict.fromkeys(table.tensors, method), **(own or {})}
    return RangeChoice(_ranges(table, methods), methods, 0.0)


def choose_ranges(
    model: onnx.ModelProto,
    feeds: Sequence[Feed],
    table: CalibrationTable,
    quantized: onnx.ModelProto,
    parameters_for: Callable[[Mapping[str, Range]], Mapping[str, np.ndarray]],
    own: Mapping[str, str] | None = None,
) -> RangeChoice:
    """The best ranges found; on held-out samples never worse than the extremes.

    Args:
        model: the prepared float model.
        feeds: the calibration samples.
        table: their ranges by ``methods_to_choose_from``, and by the methods of ``own``.
        quantized: the model quantized with the ranges of ``SAFE``, or a tensor's own.
        parameters_for: scales and zero points that other ranges put in place of constants of ``quantized``, by name.
        own: methods of the tensors that have nothing to choose.
    """
    start = uniform_choice(table, SAFE, own)
    changes = [found for method in ALTERNATIVES if table.held_out and (found := _hopeful(table, method, own or {}))]
    if not changes:
        return start
    count = min(max(len(feeds) // _SAMPLES_A_SAMPLE, 1), MOST_SAMPLES)
    trials = min(max(len(feeds) // (_SAMPLES_A_TRIAL * count), _FEWEST_TRIALS), _MOST_TRIALS)
    first_held_out = len(feeds) - table.held_out
    parts = judged_parts(model, {name: tensor.elements for name, tensor in table.tensors.items()})
    names = [part.output for part in parts]
    evaluator = AdjustableEvaluator(with_outputs(quantized, names))

    def measured_by(judge: Judge) -> Callable[[Methods], Score]:
        def measure(methods: Methods) -> Score:
            parameters = parameters_for(_ranges(table, methods))
            return judge.score(evaluator.outputs(feed, parameters) for feed in judge.feeds)

        return measure

    shown = with_outputs(model, names)
    judge = Judge(shown, _spread(feeds[:first_held_out], count), parts)
    search = _Search(measured_by(judge), trials, dict(start.methods))
    search.run(changes)
    if len(search.accepted) == 1:
        return start
    held_out = Judge(shown, _spread(feeds[first_held_out:], MOST_SAMPLES), parts)
    return _confirmed(table, search.accepted, measured_by(held_out))


def methods_to_choose_from(samples: int) -> tuple[str, ...]:
    """The methods that ``choose_ranges`` looks at, given so many samples."""
    return (SAFE, *ALTERNATIVES) if samples >= FEWEST_SAMPLES else (SAFE,)


def _confirmed(table: CalibrationTable, states: Sequence[Methods], measure: Callable[[Methods], Score]) -> RangeChoice:
    """The last of several states that is no worse than the first."""
    safe = measure(states[0])
    for methods in states[:0:-1]:
        score = measure(methods)
        if _no_worse(score, safe):
            return RangeChoice(_ranges(table, methods), methods, score.merit - safe.merit)
    return RangeChoice(_ranges(table, states[0]), states[0], 0.0)


def _hopeful(table: CalibrationTable, method: str, own: Collection[str]) -> Methods:
    """The tensors that a method is expected to serve better, over all samples, those that gain most first."""
    free = {name: tensor.methods for name, tensor in table.tensors.items() if name not in own}
    gains = {name: methods[method].sqnr - methods[SAFE].sqnr for name, methods in free.items()}
    names = sorted((name for name in gains if gains[name] >= LEAST_GAIN), key=lambda name: (-gains[name], name))
    return dict.fromkeys(names, method)


def _spread(feeds: Sequence[Feed], count: int) -> tuple[Feed, ...]:
    """So many feeds at equal distances."""
    return tuple(feeds[index * len(feeds) // count] for index in range(min(count, len(feeds))))


def _ranges(table: CalibrationTable, methods: Mapping[str, str]) -> dict[str, Range]:
    return {name: table.tensors[name].methods[method].range for name, method in methods.items()}


def _no_worse(score: Score, other: Score) -> bool:
    return score.merit >= other.merit and min(score.sqnr, ENOUGH_SQNR) >= min(other.sqnr, ENOUGH_SQNR)


class _Search:
    """Trials from one start.

    Attributes:
        accepted: the start and every state better than the one before.
    """

    def __init__(self, measure: Callable[[Methods], Score], trials: int, start: Methods) -> None:
        self.measure, self.left = measure, trials - 1
        self.accepted = [start]
        self.best = measure(start)

    def run(self, changes: Sequence[Methods]) -> None:
        """Try all changes, then by halves, until the trials are spent or the outputs good enough."""
        start = self.accepted[0]
        for change in changes:
            self._try({**start, **change})
        for group in _halves(list(changes[0])):
            method = self.accepted[-1][group[0]]
            other = ALTERNATIVES[0] if method == SAFE else SAFE
            self._try({**self.accepted[-1], **dict.fromkeys(group, other)})

    def _try(self, methods: Methods) -> None:
        if self.left == 0 or self.best.merit >= ENOUGH_SQNR or methods == self.accepted[-1]:
            return
        self.left -= 1
        score = self.measure(methods)
        if score.merit >= self.best.merit + LEAST_MERIT and _no_worse(score, self.best):
            self.accepted.append(methods)
            self.best = score


def _halves(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Both halves of a group, then theirs, down to single members."""
    waiting = deque([names])
    while waiting:
        group = waiting.popleft()
        if group is not names:
            yield group
        if len(group) > 1:
            waiting += [group[: len(group) // 2], group[len(group) // 2 :]]
