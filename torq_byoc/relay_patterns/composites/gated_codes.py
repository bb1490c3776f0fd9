"""Functions of 8-bit codes as a product: x * clip(line(x)), such as a hard swish, in place of a table.

    gate = clip(round(slope * x + offset))          one ACT pass
    y    = (x - zero point) * gate, rescaled        one product

Two passes of full width replace a look-up, which takes ACT eight times as long as one of them.  Whether a function
has the form is not read off its name: for a scale of the product, every code's result allows an interval of gate
values, and the gate is a line through these intervals (``code_lines``).  Forms in order of preference:

* a gate of 8 bits, then one of 16 bits, whose result equals the correctly rounded function, which is what the table
  holds, for each of the 256 codes;
* a gate of 16 bits that is one code off at codes whose real result lies next to a tie (``code_error``).

All are tried on every code in the machine's arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.npu_model.numerics import fixed_point
from torq_byoc.relay_patterns.arithmetic import wide_sum
from torq_byoc.relay_patterns.composites.code_error import is_close
from torq_byoc.relay_patterns.composites.code_lines import (
    Bands,
    Lines,
    applied,
    line_pass,
    lines_of_slope,
    widest_lines,
)
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.quant_params import QuantParams

_TIE = 1e-7
"""Output codes by which bands keep away from ties: what rounding the product's scale to 31 bits may move."""
_NEAR = (0.01, 0.1)
"""Output codes from a tie within which a result that is not exact may go to the other side."""
_PEAKS = 16
_FINALISTS = 64
_FINEST = 16
"""Numbers of gate codes to try at the peak of a 16-bit gate: all are so fine that more would differ little."""


@dataclass(frozen=True, eq=False)
class Gated:
    """A product form: the gate of x, and the rescale of (x - zero point) * gate."""

    dtype: DType
    gate: Rescale
    product: Rescale

    def values(self, codes: np.ndarray, source: QuantParams, out: QuantParams) -> np.ndarray:
        """The result for every code."""
        gate = applied(codes, self.gate, self.dtype)
        return applied((codes - source.zero_point) * gate, self.product, out.dtype)

    def cycles(self, config: NpuConfig) -> float:
        """ACT cycles a result."""
        return 1.0 / config.act_width(DType.INT8, None) + 1.0 / config.act_width(DType.INT8, self.dtype)

    def emit(self, e: Emitter, x: str, source: QuantParams, out: QuantParams) -> str:
        """Append both nodes."""
        gate = e.act(x, self.dtype, self.gate)
        return e.mul(x, gate, out.dtype, self.product, zero_point=source.zero_point, out=out)


def find(real: np.ndarray, source: QuantParams, out: QuantParams) -> Gated | None:
    """The cheapest product form of a function.

    Args:
        real: the function at every code of ``source``, ascending: float64[256].
        source: quantization of x, 8 bits.
        out: quantization of the result, 8 bits.
    """
    return _find(np.ascontiguousarray(real, np.float64).tobytes(), source, out)


@functools.lru_cache(maxsize=256)
def _find(real: bytes, source: QuantParams, out: QuantParams) -> Gated | None:
    values = np.frombuffer(real)
    problem = _Problem.of(out.quantize(values).astype(np.int64), source, out)
    exact = problem.exact()
    if exact is not None:
        return exact
    codes = np.clip(values / out.scale + out.zero_point, *out.dtype.integer_range)
    for near in _NEAR:
        for form in problem.nearly(codes, near).forms(DType.INT16):
            if is_close(form.values(problem.codes, source, out), problem.wanted, codes):
                return form
    return None


def find_exact(wanted: np.ndarray, source: QuantParams, out: QuantParams) -> Gated | None:
    """The cheapest product form that gives exactly the wanted code for every code of ``source``."""
    return _Problem.of(wanted.astype(np.int64), source, out).exact()


@dataclass(frozen=True, eq=False)
class _Problem:
    """The gate values, in output codes a code of x, that each code's result allows: between ``low`` and ``high``.

    Attributes:
        codes: of x, all of them.
        distance: of the codes from the zero point, without the zero point itself: its product is 0 whatever the gate.
        sign: -1 for the negative of a gate that is mostly negative.
    """

    source: QuantParams
    out: QuantParams
    codes: np.ndarray
    wanted: np.ndarray
    distance: np.ndarray
    low: np.ndarray
    high: np.ndarray
    sign: int

    @classmethod
    def of(cls, wanted: np.ndarray, source: QuantParams, out: QuantParams) -> _Problem:
        """The problem of giving each code its wanted result."""
        return cls._between(wanted, wanted - 0.5 + _TIE, wanted + 0.5 - _TIE, source, out)

    def nearly(self, real: np.ndarray, near: float) -> _Problem:
        """The same, but results so near to a tie (``real`` output codes) may lie as far on its other side."""
        below = np.minimum(self.wanted - 0.5, real - near)
        above = np.maximum(self.wanted + 0.5, real + near)
        return self._between(self.wanted, below, above, self.source, self.out)

    @classmethod
    def _between(
        cls, wanted: np.ndarray, below: np.ndarray, above: np.ndarray, source: QuantParams, out: QuantParams
    ) -> _Problem:
        first, last = source.dtype.integer_range
        codes = np.arange(first, last + 1)
        apart = codes != source.zero_point
        distance = (codes - source.zero_point)[apart].astype(np.float64)
        lowest, highest = out.dtype.integer_range
        ends = (
            np.where(wanted <= lowest, -np.inf, below - out.zero_point)[apart] / distance,
            np.where(wanted >= highest, np.inf, above - out.zero_point)[apart] / distance,
        )
        low, high = np.minimum(*ends), np.maximum(*ends)
        if -high.min() > low.max():
            return cls(source, out, codes, wanted, distance, -high, -low, -1)
        return cls(source, out, codes, wanted, distance, low, high, 1)

    def exact(self) -> Gated | None:
        """The cheapest form that gives each code its wanted result."""
        return self._first(DType.INT8 if self.high.min() < 0 else DType.UINT8) or self._first(DType.INT16)

    def _first(self, dtype: DType) -> Gated | None:
        forms = self.forms(dtype)
        return next(
            (f for f in forms if np.array_equal(f.values(self.codes, self.source, self.out), self.wanted)), None
        )

    def forms(self, dtype: DType) -> Iterator[Gated]:
        """Forms whose gate passes through all bands, the widest gap first."""
        if self.wanted[self.codes == self.source.zero_point].item() != self.out.zero_point:
            return
        peak = float(self.low.max())
        if not 0 < peak < np.inf:
            return
        units = self._units(peak, dtype)
        bands = Bands.of(self.distance, np.ceil(self.low / units[:, None]), np.floor(self.high / units[:, None]))
        first, last = dtype.integer_range
        possible = (bands.low <= bands.high).all(axis=1) & (bands.lowest >= first) & (bands.highest <= last)
        kept = np.flatnonzero(possible)
        bands, units = bands.take(kept), units[kept]
        if not units.size:
            return
        chosen, lines = _promising(bands, units)
        for index in np.argsort(-lines.gap, kind="stable"):
            if lines.gap[index] <= 0:
                return
            band, unit = bands.take(chosen[index : index + 1]), float(units[chosen[index]])
            gate = line_pass(band, float(lines.slope[index]), float(lines.gap[index]), self.source.zero_point)
            if gate is not None:
                yield Gated(dtype, gate, self._product(unit, dtype))

    def _units(self, peak: float, dtype: DType) -> np.ndarray:
        """Scales of the product to try, in output codes: so many gate codes at the gate's peak, and peaks as low as
        the bands allow up to as high."""
        most = dtype.integer_range[1]
        counts = np.arange(most, max(most // 4, most - _FINEST) if dtype.size > 1 else most // 4, -1)
        above = float(self.high[self.high > peak].min(initial=2 * peak))
        peaks = peak + (above - peak) * (np.arange(_PEAKS) + 0.5) / _PEAKS
        return (peaks[None, :] / counts[:, None]).reshape(-1)

    def _product(self, unit: float, dtype: DType) -> Rescale:
        """The rescale of the product with a gate; ``unit`` output codes a unit of it."""
        scale, shift = fixed_point(np.array([self.sign * unit]))
        return Rescale(
            np.zeros(1, np.int32),
            scale,
            shift,
            self.out.zero_point,
            *self.out.dtype.integer_range,
            rounding=Rounding.NTE,
            sum_bits=48 if wide_sum(dtype) else 32,
        )


def _promising(bands: Bands, units: np.ndarray) -> tuple[np.ndarray, Lines]:
    """The problems worth a closer look, and their lines.

    All of them approximate one real gate, so the slope that suits one of them tells which others have room.
    """
    if units.size <= _FINALISTS:
        return np.arange(units.size), widest_lines(bands)
    sample = np.linspace(0, units.size - 1, 4).astype(int)
    tried = widest_lines(bands.take(sample))
    best = int(tried.gap.argmax())
    slope = float(tried.slope[best] * units[sample[best]])
    room = lines_of_slope(bands, slope / units).gap
    chosen = np.argsort(-room, kind="stable")[:_FINALISTS]
    return chosen, widest_lines(bands.take(chosen))
