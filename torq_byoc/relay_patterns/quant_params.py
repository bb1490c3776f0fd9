"""The affine quantization of one tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.errors import QuantizationError
from torq_byoc.npu_model.dtypes import DType


@dataclass(frozen=True)
class QuantParams:
    """real = (code - zero_point) * scale, with codes of type ``dtype``; one scale for the whole tensor."""

    scale: float
    zero_point: int
    dtype: DType

    def quantize(self, real: np.ndarray | float) -> np.ndarray:
        """Codes of real values: divide, round half to even, add the zero point, saturate."""
        low, high = self.dtype.integer_range
        codes = np.rint(np.asarray(real, np.float64) / self.scale) + self.zero_point
        return np.clip(codes, low, high).astype(self.dtype.numpy)

    def dequantize(self, codes: np.ndarray) -> np.ndarray:
        """Real values (float64) of codes."""
        return (codes.astype(np.float64) - self.zero_point) * self.scale

    def recoded(self) -> QuantParams | None:
        """The same values as 8-bit codes with zero point 0, signed or not; None if neither type holds them all."""
        low, high = (limit - self.zero_point for limit in self.dtype.integer_range)
        for dtype in (DType.INT8, DType.UINT8):
            if dtype.integer_range[0] <= low and high <= dtype.integer_range[1]:
                return QuantParams(self.scale, 0, dtype)
        return None

    def centred(self) -> QuantParams:
        """The same values as int16 codes with zero point 0.

        Raises:
            QuantizationError: the codes are 16 bits wide and have a zero point; without it they take 17.
        """
        if self.zero_point and self.dtype.size > 1:
            raise QuantizationError(
                "16-bit codes with a zero point do not fit a multiplier once it is removed",
                why=f"type {self.dtype.value}, zero point {self.zero_point}; the product takes int16 operands",
                remedy="quantize the tensor symmetrically (zero point 0)",
            )
        return QuantParams(self.scale, 0, DType.INT16)
