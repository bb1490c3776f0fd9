"""Arrays that a user gives for a model's inputs: brought to the input's type without changing what they mean."""

from __future__ import annotations

import numpy as np

from torq_byoc.errors import CalibrationError
from torq_byoc.npu_model.dtypes import DType

_SOURCES = {"float": "floating-point numbers", "integer": "integers", "bool": "booleans"}


def as_type(array: np.ndarray, dtype: np.dtype, what: str, name: str) -> np.ndarray:
    """The array in another type of the same kind, every value kept (floats to the type's precision).

    Integers for a float input are refused, not converted: they are a quantized tensor or an image that was
    never scaled far more often than numbers that happen to be whole.

    Args:
        array: what the user gave.
        dtype: type of the input.
        what: how messages call the array: "input", "calibration array".
        name: name of the input.

    Raises:
        CalibrationError: the kinds of type differ, or a value has no place in the type.
    """
    if array.dtype == dtype:
        return array
    given, wanted = _kind(array.dtype), _kind(dtype)
    if given != wanted and (given, wanted) != ("bool", "integer"):
        raise CalibrationError(
            f"{what} {name} has the wrong type",
            where=name,
            why=f"it is {array.dtype}, the input is {dtype}",
            remedy=_remedy(given, wanted, dtype),
        )
    with np.errstate(over="ignore", under="ignore"):
        converted = array.astype(dtype)
    lost = converted != array if wanted != "float" else np.isfinite(array) & ~np.isfinite(converted)
    if lost.any():
        raise CalibrationError(
            f"{what} {name} holds values that {dtype} cannot",
            where=name,
            why=f"{int(lost.sum())} of {array.size} values, such as {array[lost][0]}",
            remedy=f"give values in the range of {dtype}",
        )
    return converted


def _kind(dtype: np.dtype) -> str:
    if dtype.kind == "f" or dtype == DType.BF16.numpy:
        return "float"
    return {"i": "integer", "u": "integer", "b": "bool"}.get(dtype.kind, "other")


def _remedy(given: str, wanted: str, dtype: np.dtype) -> str:
    if (given, wanted) == ("integer", "float"):
        return f"convert it to {dtype} and scale it as the model was trained; dequantize it if it is quantized"
    return f"give {_SOURCES[wanted]} as {dtype}" if wanted in _SOURCES else f"convert it to {dtype}"
