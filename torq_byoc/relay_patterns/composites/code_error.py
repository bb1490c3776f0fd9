"""When a program that is not exact is good enough for a function of codes."""

from __future__ import annotations

import numpy as np

MOST_ERROR = 1.02
"""Mean square error against the real function, over that of correct rounding."""


def is_close(codes: np.ndarray, rounded: np.ndarray, real: np.ndarray) -> bool:
    """Whether codes are at most one beside the correctly rounded ones, and together about as near to the function.

    Args:
        codes: what the program gives.
        rounded: the function, correctly rounded and clipped.
        real: the function in units of a code, clipped, not rounded.
    """
    if np.abs(codes - rounded).max() > 1:
        return False
    return bool(np.square(codes - real).sum() <= MOST_ERROR * np.square(rounded - real).sum())
