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

    @property
    def size(self) -> int:
        """Bytes an element takes in memory."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.BF16, DType.FP32)

    @property
    def numpy(self) -> np.dtype:
        """The numpy type; bfloat16 is ``ml_dtypes.bfloat16``."""
        if self is DType.BF16:
            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.value)

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
