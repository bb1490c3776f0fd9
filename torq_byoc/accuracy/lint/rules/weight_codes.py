"""Weights whose scales are not made for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.products import QuantizedProduct
from torq_byoc.accuracy.lint.subject import Subject

SMALL_PART = 0.25
"""Part of the codes below which weights are coarser than they look; quantizers that leave a bit free use half."""
LONELY = 16.0
"""Times the next largest scale of the layer from which a channel's is an outlier."""
FEWEST_CHANNELS = 4
"""Channels that an outlier needs to stand out from."""


def weight_codes(subject: Subject) -> Iterator[LintFinding]:
    """Largest code of every layer and channel against what its type holds, and scales that stand alone.

    A scale is the largest weight over the largest code, so every channel with a scale of its own reaches the end of the
    codes; one that shares its scale need not.  Only models that came with their scales are looked at.
    """
    if not subject.carries_scales:
        return
    for product in subject.products:
        peak = np.abs(product.codes).max(axis=1, initial=0)
        yield from _small_part(product, peak)
        yield from _outlier(product, peak)


def _small_part(product: QuantizedProduct, peak: np.ndarray) -> Iterator[LintFinding]:
    own_scales = len(set(product.scales.tolist())) > 1
    groups = peak if own_scales else peak.max(keepdims=True)
    room = SMALL_PART * product.weight_peak
    # A bias that would overflow asks for a scale beyond the weights' own (see bias_overflow).
    free = ~_driven_by_bias(product) if own_scales else np.ones(1, bool)
    small = np.flatnonzero((groups < room) & (groups > 0) & free)
    if small.size:
        which = f"{small.size} of {len(groups)} channels" if own_scales else "the layer"
        yield LintFinding(
            "weight-codes",
            Severity.WARNING,
            product.node,
            f"the weights of {which} reach code {int(groups[small].max())} of {product.weight_peak} at most: their"
            " scale is several times too large, or their codes are damaged",
            "quantize the float model again, with scales from the largest weight of each channel",
        )


def _outlier(product: QuantizedProduct, peak: np.ndarray) -> Iterator[LintFinding]:
    real = np.where((peak > 0) & ~_driven_by_bias(product), product.scales, 0.0)
    if np.count_nonzero(real) < FEWEST_CHANNELS:
        return
    second, first = np.sort(real)[-2:]
    if first >= LONELY * second:
        yield LintFinding(
            "weight-codes",
            Severity.WARNING,
            product.node,
            f"channel {int(real.argmax())}'s scale {first:.3g} is {first / second:.3g} times the layer's next largest",
            "compare its weights with the float model's; quantize that again if they are not so large there",
        )


def _driven_by_bias(product: QuantizedProduct) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.abs(product.bias_codes) > 2**29
