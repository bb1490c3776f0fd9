"""Weights that a model stores as integers keep them, where the integers can be what the machine multiplies."""

from __future__ import annotations

import numpy as np

from torq_byoc.frontend.float_weights import StoredWeights

_INT8 = np.iinfo(np.int8)


def kept_weights(
    stored: StoredWeights | None, values: np.ndarray, axis: int | None, floor: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """int8 codes and float32 scales as stored; None where new ones have to be found.

    Args:
        stored: how the model stores the weights; None if as floats.
        values: the weights as they are now; a rewrite may have changed them.
        axis: axis of the output channels, None where they share a scale.
        floor: smallest scale allowed for each channel (keeps the bias inside int32).
    """
    if stored is None or not np.array_equal(stored.values, values):
        return None
    fits = stored.codes.min() >= _INT8.min and stored.codes.max() <= _INT8.max
    if not fits or stored.axis not in (None, axis) or not np.all(stored.scale >= floor):
        return None
    return stored.codes.astype(np.int8), stored.scale
