"""Biases that the ACT unit's int32 register cannot hold, and weights that lose precision to make them fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.products import QuantizedProduct
from torq_byoc.accuracy.lint.subject import Subject

LIMIT = 2**31
FULL_SCALE = 127
"""Code of a channel's largest weight when its scale is chosen for the weights alone."""
ENOUGH_CODES = 32
"""Largest code below which a channel's weights are coarser than they look."""


def bias_overflow(subject: Subject) -> Iterator[LintFinding]:
    """Int32 biases with the input's zero point folded in."""
    for product in subject.products:
        bias = np.abs(product.folded_bias)
        over = np.flatnonzero(~(bias < LIMIT))
        if over.size:
            yield LintFinding(
                "bias-overflow",
                Severity.ERROR,
                product.node,
                f"the bias of {over.size} of {len(bias)} channels does not fit int32: channel {over[0]} needs"
                f" {bias[over[0]]:.3g} steps of input scale x weight scale, the register holds {LIMIT}",
                "use larger weight scales for these channels, or quantize the float model with `torq quantize`,"
                " which does",
            )
        yield from _coarsened(product)


def _coarsened(product: QuantizedProduct) -> Iterator[LintFinding]:
    """Channels whose weights use few codes because a large bias asked for a large scale."""
    peak = np.abs(product.codes).max(axis=1, initial=0)
    driven = np.flatnonzero((peak < ENOUGH_CODES) & (peak > 0) & (np.abs(product.bias_codes) > LIMIT // 4))
    if driven.size:
        yield LintFinding(
            "bias-overflow",
            Severity.NOTE,
            product.node,
            f"{driven.size} channels have weights so small beside their bias that they use only"
            f" {int(peak[driven].max())} of {FULL_SCALE} codes, or int32 would overflow",
            "nothing when these channels are constant; otherwise remove the dead input channels or rescale the layer",
        )
