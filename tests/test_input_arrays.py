"""Arrays in another type of the same kind: every value kept, or a refusal that names one that is lost."""

import ml_dtypes
import numpy as np
import pytest

from torq_byoc.errors import CalibrationError
from torq_byoc.input_arrays import as_type


def converted(array: np.ndarray, dtype: object) -> np.ndarray:
    return as_type(array, np.dtype(dtype), "input", "x")


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.array([0.5, -2], np.float64), np.float32, [0.5, -2]),
        (np.array([0.5, -2], np.float16), np.float32, [0.5, -2]),
        (np.array([0.5, -2], ">f4"), np.float32, [0.5, -2]),
        (np.array([1 + 2**-9], np.float32), ml_dtypes.bfloat16, [1.0]),
        (np.array([3, -3], np.int64), np.int8, [3, -3]),
        (np.array([127], np.uint8), np.int8, [127]),
        (np.array([2**63 - 1], np.uint64), np.int64, [2**63 - 1]),
        (np.array([True, False]), np.int64, [1, 0]),
    ],
)
def test_values_survive(array, dtype, expected):
    result = converted(array, dtype)
    assert result.dtype == np.dtype(dtype)
    assert result.tolist() == expected


def test_the_same_type_is_not_copied():
    array = np.zeros(3, np.float32)
    assert converted(array, np.float32) is array


def test_not_a_number_passes():
    """An inference may be given anything; calibration has its own check."""
    assert np.isnan(converted(np.array([np.nan]), np.float32)).all()
    assert np.isinf(converted(np.array([-np.inf]), np.float32)).all()


@pytest.mark.parametrize(
    ("array", "dtype", "words"),
    [
        (np.array([1, 2], np.int8), np.float32, "dequantize"),
        (np.array([True]), np.float32, "floating-point numbers"),
        (np.array([1.0]), np.int8, "give integers as int8"),
        (np.array([1], np.uint8), np.bool_, "give booleans"),
        (np.array([1j]), np.float32, "wrong type"),
        (np.array(["1"]), np.int32, "wrong type"),
        (np.array([0], "M8[s]"), np.int64, "wrong type"),
    ],
)
def test_other_kinds_are_refused(array, dtype, words):
    with pytest.raises(CalibrationError, match=words) as caught:
        converted(array, dtype)
    assert caught.value.where == "x" and str(array.dtype) in caught.value.why


@pytest.mark.parametrize(
    ("array", "dtype", "words"),
    [
        (np.array([0, 200, 255], np.uint8), np.int8, "2 of 3 values, such as 200"),
        (np.array([-1], np.int8), np.uint8, "such as -1"),
        (np.array([2**63], np.uint64), np.int64, "such as 9223372036854775808"),
        (np.array([1, 1 << 40], np.int64), np.int32, "1 of 2 values, such as 1099511627776"),
        (np.array([1e300]), np.float32, "such as 1e"),
        (np.array([7e4], np.float32), np.float16, "such as 70000"),
    ],
)
def test_values_without_a_place_are_refused(array, dtype, words):
    with pytest.raises(CalibrationError, match="values that") as caught:
        converted(array, dtype)
    assert words in caught.value.why
