"""Element types of the machine and their numpy forms."""

from __future__ import annotations

from enum import Enum

import ml_dtypes
import numpy as np


class DType(Enum):
    """An element type; the value is its name in containers, JSON and error messages."""

    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    BF16 = "bfloat16"
    FP32 = "float32"

    numpy: np.dtype
    """The numpy type; bfloat16 is ``ml_dtypes.bfloat16``."""
    size: int
    """Bytes an element takes in memory."""
    is_float: bool
    """Whether it is a floating-point type."""

    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        self.numpy = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        self.size = self.numpy.itemsize
        self.is_float = name in ("bfloat16", "float32")

    @property
    def integer_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        info = np.iinfo(self.numpy)
        return int(info.min), int(info.max)

    @classmethod
    def of(cls, dtype: np.dtype | type | str) -> DType:
        """The element type of a numpy dtype.

        Raises:
            ValueError: the machine has no such type.
        """
        return cls(np.dtype(dtype).name if not isinstance(dtype, str) else dtype)
