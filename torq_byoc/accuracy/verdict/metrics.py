"""How far results are from what they should be, gathered sample by sample in constant memory.

Everything is kept channel by channel, because a channel that is lost is invisible in the figures of a large tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.quantize.evaluation.distance import MOST_SQNR

DISTINCT = 0.01
"""A channel says something when it varies by more than this part of its own magnitude."""


@dataclass(frozen=True)
class Figures:
    """Agreement of a tensor, or of a part of it, with its reference.

    Attributes:
        sqnr: signal to quantization noise in dB, +-``MOST_SQNR`` at most.
        cosine: of both as vectors.
        max_error: largest absolute difference.
        mean_error: mean absolute difference.
        peak: largest magnitude of the reference.
        elements: how many were compared.
    """

    sqnr: float
    cosine: float
    max_error: float
    mean_error: float
    peak: float
    elements: int


class Comparison:
    """Sums over all samples, a row a channel."""

    def __init__(self) -> None:
        self._sums: np.ndarray | None = None
        self._extremes: np.ndarray | None = None
        self._elements = 0
        self._same_best = 0
        self._rows = 0

    def update(self, reference: np.ndarray, found: np.ndarray, axis: int = 0) -> None:
        """Take in one sample of both, of equal shapes; ``axis`` is that of the channels."""
        if not np.size(reference):
            return
        wanted, given = _without_shared_infinities(*(_channels(values, axis) for values in (reference, found)))
        error = np.abs(given - wanted)
        with np.errstate(all="ignore"):
            sums = np.stack(
                [
                    np.einsum("ij,ij->i", wanted, wanted),
                    np.einsum("ij,ij->i", given, given),
                    np.einsum("ij,ij->i", wanted, given),
                    np.einsum("ij,ij->i", error, error),
                    error.sum(axis=1),
                ]
            )
        extremes = np.stack(
            [wanted.max(axis=1), -wanted.min(axis=1), given.max(axis=1), -given.min(axis=1), error.max(axis=1)]
        )
        self._sums = sums if self._sums is None else self._sums + sums
        self._extremes = extremes if self._extremes is None else np.maximum(self._extremes, extremes)
        self._elements += wanted.size
        if len(wanted) > 1:
            self._same_best += int(np.count_nonzero(wanted.argmax(axis=0) == given.argmax(axis=0)))
            self._rows += wanted.shape[1]

    @property
    def empty(self) -> bool:
        """Whether nothing was compared."""
        return self._sums is None

    def figures(self) -> Figures:
        """Of the whole tensor."""
        if self._sums is None or self._extremes is None:
            return Figures(MOST_SQNR, 1.0, 0.0, 0.0, 0.0, 0)
        wanted, given, product, noise, total = self._sums.sum(axis=1)
        peak = float(np.maximum(self._extremes[0], self._extremes[1]).max())
        return Figures(
            float(_decibels(wanted, noise)),
            float(_cosine(wanted, given, product)),
            float(self._extremes[4].max()),
            float(total / self._elements),
            peak,
            self._elements,
        )

    def channel_sqnr(self) -> np.ndarray:
        """Of every channel, in dB."""
        if self._sums is None:
            return np.zeros(0)
        return _decibels(self._sums[0], self._sums[3])

    def dead_channels(self) -> tuple[int, ...]:
        """Channels that say something in the reference, and are one constant here."""
        if self._extremes is None:
            return ()
        high, low, found_high, found_low, _ = self._extremes
        varies = high + low > DISTINCT * np.maximum(np.abs(high), np.abs(low))
        return tuple(np.flatnonzero(varies & (found_high + found_low == 0)).tolist())

    def agreement(self) -> float | None:
        """Part of the places at which the largest channel is the same one; None for a single channel."""
        return self._same_best / self._rows if self._rows else None


def _channels(values: np.ndarray, axis: int) -> np.ndarray:
    """float64[channels, others]."""
    array = np.asarray(values).astype(np.float64)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) if array.ndim else array.reshape(1, 1)


def _without_shared_infinities(wanted: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zeros where both have the same infinity or NaN, which are equal and have no difference."""
    with np.errstate(all="ignore"):
        if np.isfinite(wanted.sum()):
            return wanted, given
    same = ~np.isfinite(wanted) & ((wanted == given) | (np.isnan(wanted) & np.isnan(given)))
    return np.where(same, 0.0, wanted), np.where(same, 0.0, given)


def _decibels(signal: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """As ``distance.sqnr``, element by element."""
    with np.errstate(all="ignore"):
        found = np.clip(10 * np.log10(signal / noise), -MOST_SQNR, MOST_SQNR)
    found = np.where((signal == 0) | ~np.isfinite(noise), -MOST_SQNR, found)
    return np.where(noise == 0, MOST_SQNR, found)


def _cosine(wanted: np.ndarray, given: np.ndarray, product: np.ndarray) -> np.ndarray:
    """As ``distance.cosine``."""
    with np.errstate(all="ignore"):
        norm = np.sqrt(wanted) * np.sqrt(given)
        found = np.clip(product / norm, -1.0, 1.0)
    both_zero = ((wanted == 0) & (given == 0)).astype(np.float64)
    return np.where((norm > 0) & np.isfinite(found), found, both_zero)
