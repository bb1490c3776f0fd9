"""Biases in other steps than the sums that they are added to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.products import QuantizedProduct
from torq_byoc.accuracy.lint.subject import Subject

TOLERANCE = 1e-3
"""Relative distance of a bias's scale from input scale x weight scale that float32 and rounding of tools leave."""
CONVENTION = 0.5
"""Part of a model's biases that must be in those steps for the others to be wrong: some tools have other ones."""


def bias_scales(subject: Subject) -> Iterator[LintFinding]:
    """Scales of int32 biases against input scale x weight scale, channel by channel.

    Quantizers store biases in the steps of the sums.  Where a model does so, a scale that differs is the trace of one
    that was changed: of the input, of the weights or of the bias.  Only models that came with scales are looked at.
    """
    if not subject.carries_scales:
        return
    products = [product for product in subject.products if product.bias_scales is not None]
    ratios = [_ratios(product) for product in products]
    if not ratios or np.mean(np.concatenate([_alike(one) for one in ratios])) < CONVENTION:
        return
    for product, ratio in zip(products, ratios, strict=True):
        other = np.flatnonzero(~_alike(ratio))
        if other.size:
            yield LintFinding(
                "bias-scales",
                Severity.ERROR,
                product.node,
                f"input scale x weight scale is {ratio[other[0]]:.4g} times the scale of the bias in {other.size} of"
                f" {len(ratio)} channels (channel {other[0]} first), and the same elsewhere in the model",
                _remedy(product, other.size),
            )


def _ratios(product: QuantizedProduct) -> np.ndarray:
    assert product.bias_scales is not None
    return product.input_scale * product.scales / product.bias_scales


def _alike(ratios: np.ndarray) -> np.ndarray:
    return np.abs(ratios - 1.0) <= TOLERANCE


def _remedy(product: QuantizedProduct, channels: int) -> str:
    whose = "the scale of the layer's input, or those of its weights," if channels == len(product.scales) else ""
    return (
        f"quantize the float model again: {whose or 'the scales of these channels'} were changed behind the quantizer"
    )
