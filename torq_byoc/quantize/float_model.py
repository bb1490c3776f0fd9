"""Runs a float model sample by sample and shows every intermediate tensor to the observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx

from torq_byoc.errors import CalibrationError, choose_from
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.ranges import OBSERVERS, Range


def observe(
    model: onnx.ModelProto,
    feeds: Iterable[Mapping[str, np.ndarray]],
    tensors: Iterable[str],
    method: str,
    progress: Callable[[], None] | None = None,
) -> dict[str, Range]:
    """Ranges of float tensors over all samples.

    Args:
        model: a prepared float model.
        feeds: one feed a sample.
        tensors: names to observe.
        method: name of a calibrator in ``ranges.OBSERVERS``.
        progress: called after each sample.

    Raises:
        CalibrationError: an intermediate value is NaN or infinite, or there is no such method.
    """
    if method not in OBSERVERS:
        raise CalibrationError(
            f"there is no calibration method {method!r}",
            where="--method",
            remedy=choose_from(method, sorted(OBSERVERS)),
        )
    observers = {name: OBSERVERS[method]() for name in tensors}
    evaluator = Evaluator(model)
    for feed in feeds:
        values = evaluator.tensors(feed)
        for name, observer in observers.items():
            value = values[name]
            if not np.isfinite(value).all():
                raise CalibrationError(
                    f"tensor {name} becomes NaN or infinite on the calibration data",
                    where=name,
                    why=f"{int((~np.isfinite(value)).sum())} of {value.size} values of one sample",
                    remedy="check the calibration data and the model",
                )
            observer.update(value)
        if progress:
            progress()
    return {name: observer.range() for name, observer in observers.items()}
