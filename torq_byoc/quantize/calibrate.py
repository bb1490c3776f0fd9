"""One run of the float model over all samples, every tensor's statistics kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx

from torq_byoc.errors import CalibrationError, require_known
from torq_byoc.quantize.calibration_table import FEWEST_SAMPLES, CalibrationTable, MethodRange, TensorCalibration
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.observers import CALIBRATORS, Range, Statistics
from torq_byoc.quantize.observers.rounding_noise import expected_sqnr

_FROM_EXTREMES = frozenset({"minmax", "moving-average", "headroom"})
"""Methods that need no counts of values."""


def calibrate(
    model: onnx.ModelProto,
    feeds: Sequence[Mapping[str, np.ndarray]],
    tensors: Iterable[str],
    methods: Sequence[str] = ("minmax",),
    progress: Callable[[], None] | None = None,
    others: Sequence[Callable[[Mapping[str, np.ndarray]], None]] = (),
) -> CalibrationTable:
    """Ranges of float tensors over all samples.

    Extremes, counts and hence all ranges are those of the values of all samples together, except for the moving
    average, which goes from sample to sample.

    Args:
        model: a prepared float model.
        feeds: one feed a sample, at least one.
        tensors: names to observe.
        methods: names of calibrators (``observers.CALIBRATORS``).
        progress: called after each sample.
        others: each receives all tensors of every sample.

    Raises:
        CalibrationError: an intermediate value is NaN or infinite, or there is no such method.
    """
    check_methods(methods)
    counts = not _FROM_EXTREMES.issuperset(methods)
    watches = {name: _Watch(len(feeds), counts) for name in tensors}
    evaluator = Evaluator(model)
    for feed in feeds:
        values = evaluator.tensors(feed)
        for name, watch in watches.items():
            check_finite(name, values[name])
            watch.update(values[name])
        for other in others:
            other(values)
        if progress:
            progress()
    return CalibrationTable(
        samples=len(feeds),
        held_out=_held_out(len(feeds)),
        tensors={name: watches[name].result(methods) for name in sorted(watches)},
    )


def check_methods(methods: Iterable[str]) -> None:
    """Refuse methods that do not exist.

    Raises:
        CalibrationError: there is no such method.
    """
    require_known(CalibrationError, "calibration method", methods, sorted(CALIBRATORS))


def check_finite(name: str, value: np.ndarray) -> None:
    """Refuse what a tensor becomes on one sample when that is no number.

    Raises:
        CalibrationError: a value is NaN or infinite.
    """
    if not np.isfinite(value).all():
        raise CalibrationError(
            f"tensor {name} becomes NaN or infinite on the calibration data",
            where=name,
            why=f"{int((~np.isfinite(value)).sum())} of {value.size} values of one sample",
            remedy="check the calibration data and the model",
        )


def _held_out(samples: int) -> int:
    """How many of the samples, the last, show how ranges do on unseen data."""
    return samples // 4 if samples >= FEWEST_SAMPLES else 0


class _Watch:
    """Follows one tensor through so many samples."""

    def __init__(self, samples: int, counts: bool) -> None:
        self.statistics = Statistics(counts=counts)
        self.marks = (-(-samples // 4), -(-samples // 2), samples)
        self.first_held_out = samples - _held_out(samples)
        self.growth: dict[int, Range] = {}
        self.done, self.seen, self.unseen, self.beyond = 0, 0, 0, 0
        self.known = Range(0.0, 0.0)

    def update(self, values: np.ndarray) -> None:
        """Take in one sample's values."""
        self.statistics.update(values)
        exact = self.statistics.exact
        if self.done < self.first_held_out:
            self.known = exact
        else:
            self.unseen += values.size
            if exact != self.known:
                self.beyond += int(((values < self.known.low) | (values > self.known.high)).sum())
        self.done += 1
        self.seen += values.size
        self.growth[self.done] = exact
        self.growth = {mark: self.growth[mark] for mark in self.growth if mark in self.marks}

    def result(self, methods: Sequence[str]) -> TensorCalibration:
        """What was found by so many methods."""
        found = {method: CALIBRATORS[method](self.statistics) for method in methods}
        growth = [self.growth[mark] for mark in self.marks]
        values, counts = self.statistics.points()
        squares = np.square(values)
        fourth = float(counts @ np.square(squares))
        return TensorCalibration(
            values=self.seen,
            elements=float(counts @ squares) ** 2 / fourth / self.done if fourth else 0.0,
            methods={
                name: MethodRange(each.low, each.high, expected_sqnr(self.statistics, each))
                for name, each in found.items()
            },
            growth=tuple((each.low, each.high) for each in growth),
            outside=self.beyond / self.unseen if self.unseen else None,
        )
