"""Ratios of scales that the ACT unit's int32 multiplier and 6-bit shift cannot express, or hardly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.npu_model.numerics import fixed_point

ENOUGH = 2**7
"""A multiplier of at least this many steps is off by at most 1/256: half a code at full scale."""


def multiplier_range(subject: Subject) -> Iterator[LintFinding]:
    """input scale x weight scale / output scale of every product, one a channel, all of a layer sharing one shift."""
    for product in subject.products:
        if product.output_scale is None:
            continue
        with np.errstate(all="ignore"):
            factors = product.input_scale * product.scales / product.output_scale
        largest = float(np.abs(factors).max(initial=0))
        if not largest < 2.0**31:
            yield LintFinding(
                "multiplier-range",
                Severity.ERROR,
                product.node,
                f"the rescale multiplier of channel {int(np.argmax(np.abs(factors)))} is {largest:.3g};"
                " the ACT unit takes less than 2^31",
                "check the scales of input, weights and output: one of them is damaged or in another unit",
            )
            continue
        steps, _ = fixed_point(factors)
        used = np.abs(product.codes).any(axis=1)
        coarse = np.flatnonzero((np.abs(steps.astype(np.int64)) < ENOUGH) & used)
        if coarse.size:
            worst = int(coarse[np.argmin(np.abs(steps[coarse]))])
            yield LintFinding(
                "multiplier-range",
                Severity.WARNING,
                product.node,
                f"channel {worst}'s multiplier is {int(steps[worst])} steps (want {ENOUGH}):"
                f" {factors[worst]:.3g} beside {largest:.3g} of the layer's largest, which sets the shift for all",
                "equalize the channels (the rewrites of `torq compile` do), or split the layer by channels",
            )
