"""What a quantizer makes of the values of a tensor: saturated, flushed to zero, codes that are never used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.layers.codes import Codes

NOTICEABLE = 0.1
"""A value counts as more than zero from this part of its channel's root mean square upwards."""


@dataclass(frozen=True)
class CodeUse:
    """Shares of all values.

    Attributes:
        saturated: of values more than a step outside the range, which lose more than any value inside.
        zeroed: of values that become zero though they are noticeable in their channel.
        unused: part of the codes' span that no value reaches.
    """

    saturated: float
    zeroed: float
    unused: float


class CodeCensus:
    """Counts over all samples for one tensor."""

    def __init__(self, codes: Codes, axis: int) -> None:
        self._codes, self._axis = codes, axis
        low, high = codes.limits
        self._low = float(codes.dequantize(np.array(low))) - codes.scale
        self._high = float(codes.dequantize(np.array(high))) + codes.scale
        self._values = self._saturated = self._zeroed = 0
        self._least, self._most = high, low

    def update(self, reference: np.ndarray) -> None:
        """Take in one sample of the tensor's real values."""
        values = np.asarray(reference).astype(np.float64)
        if not values.size:
            return
        self._values += values.size
        self._saturated += int(np.count_nonzero((values < self._low) | (values > self._high)))
        self._zeroed += int(np.count_nonzero((np.abs(values) < self._codes.scale / 2) & self._noticeable(values)))
        found = self._codes.quantize(np.array([values.min(), values.max()]))
        self._least, self._most = min(self._least, int(found[0])), max(self._most, int(found[1]))

    def _noticeable(self, values: np.ndarray) -> np.ndarray:
        others = tuple(axis for axis in range(values.ndim) if axis != self._axis)
        with np.errstate(all="ignore"):
            spread = np.sqrt(np.mean(np.square(values), axis=others, keepdims=True))
        return (np.abs(values) > NOTICEABLE * spread) & (values != 0)

    def use(self) -> CodeUse:
        """The shares so far."""
        low, high = self._codes.limits
        count = max(self._values, 1)
        unused = 1 - (self._most - self._least) / (high - low) if self._values else 0.0
        return CodeUse(self._saturated / count, self._zeroed / count, unused)
