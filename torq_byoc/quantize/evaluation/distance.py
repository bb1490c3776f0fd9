"""How far a tensor is from what it should be."""

from __future__ import annotations

import numpy as np

MOST_SQNR = 200.0
"""Decibels that stand for "equal": beyond what float64 resolves."""


def sqnr(reference: np.ndarray, found: np.ndarray) -> float:
    """Signal to quantization noise in dB: 10 log10(sum of squares of the reference / sum of squares of the difference).

    ``MOST_SQNR`` for equal tensors; its negative for a difference from nothing but zeros, and for NaN or infinity
    where the reference is finite.
    """
    wanted, given = _flat(reference), _flat(found)
    with np.errstate(all="ignore"):
        return sqnr_of(float(np.square(wanted).sum()), float(np.square(given - wanted).sum()))


def sqnr_of(signal: float, noise: float) -> float:
    """``sqnr`` from the two sums of squares."""
    if noise == 0.0:
        return MOST_SQNR
    if signal == 0.0 or not np.isfinite(noise):
        return -MOST_SQNR
    return float(np.clip(10 * np.log10(signal / noise), -MOST_SQNR, MOST_SQNR))


def cosine(reference: np.ndarray, found: np.ndarray) -> float:
    """Cosine of two tensors taken as vectors; 1 when both are zero, 0 when one is."""
    a, b = _flat(reference), _flat(found)
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b / norm) if norm else float(not a.any() and not b.any())


def _flat(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).astype(np.float64).reshape(-1)
