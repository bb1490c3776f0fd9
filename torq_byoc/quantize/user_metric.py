"""A quality that only the user can measure: a function of the float model's outputs and of the quantized one's."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from torq_byoc.errors import AccuracyError
from torq_byoc.files import Expected, read_ordinary

Metric = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], Any]
"""Takes the outputs of both by name, the first axis counting samples; returns a number, or numbers by name."""

SINGLE = "metric"
"""Name of the result of a metric that returns one number."""

_FILE = Expected(AccuracyError, "the metric", "give FILE.py:function", 16 << 20)


def load_metric(text: str) -> Metric:
    """The function that ``FILE.py:function`` names; the file is run, so it must be one that the user trusts.

    Raises:
        AccuracyError: there is no such file or function, or the file cannot be run.
    """
    path, separator, name = text.rpartition(":")
    if not separator or not path or not name:
        raise AccuracyError(f"cannot read the metric {text!r}", where="--metric", remedy="write FILE.py:function")
    read_ordinary(Path(path), _FILE)
    spec = importlib.util.spec_from_file_location("torq_user_metric", path)
    if spec is None or spec.loader is None:
        raise _FILE.refusal(path, "it is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file that exits must not decide how this process ends
        raise _FILE.refusal(path, f"{type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise AccuracyError(
            f"the metric has no function {name!r}", where=path, remedy="name a function that the file defines"
        )
    return function


def evaluate_metric(
    metric: Metric, wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The results of a metric by name.

    Raises:
        AccuracyError: it fails, or returns anything but finite numbers.
    """
    name = getattr(metric, "__name__", SINGLE)
    try:
        result = metric(wanted, found)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as above
        raise AccuracyError(
            "the metric fails",
            where=name,
            why=f"{type(error).__name__}: {error}",
            remedy="it gets two mappings of output names to arrays whose first axis counts samples",
        ) from error
    values = dict(result) if isinstance(result, Mapping) else {SINGLE: result}
    if not values:
        raise _no_numbers(name, "it returns an empty mapping")
    numbers = {str(key): _number(name, value) for key, value in values.items()}
    strange = [key for key, value in numbers.items() if not math.isfinite(value)]
    if strange:
        raise _no_numbers(name, f"{', '.join(strange)} is not finite")
    return numbers


def _number(name: str, value: object) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise _no_numbers(name, f"it returns {value!r:.80}")
    return float(array.reshape(())[()])


def _no_numbers(name: str, why: str) -> AccuracyError:
    return AccuracyError(
        "the metric returns no number", where=name, why=why, remedy="return a number, or a mapping of names to numbers"
    )
