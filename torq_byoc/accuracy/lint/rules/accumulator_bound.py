"""Sums that may leave the accumulator on some input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject

SUM_BITS = {8: 32, 16: 48}
"""Width of a sum by width of the input's codes."""


def accumulator_bound(subject: Subject) -> Iterator[LintFinding]:
    """Largest sum that any input can make of a product's weights, and its bias, against the accumulator's range.

    The bound is exact: every input code takes the end of its range that has the weight's sign.
    """
    for product in subject.products:
        low, high = product.input_codes
        bits = SUM_BITS.get(int(high - low).bit_length(), 48)
        positive = np.maximum(product.codes, 0).sum(axis=1).astype(np.float64)
        negative = np.minimum(product.codes, 0).sum(axis=1).astype(np.float64)
        bias = product.folded_bias
        largest = np.maximum(
            np.abs(positive * high + negative * low + bias), np.abs(positive * low + negative * high + bias)
        )
        worst = int(np.argmax(largest))
        if not largest[worst] < 2.0 ** (bits - 1):
            yield LintFinding(
                "accumulator-bound",
                Severity.WARNING,
                product.node,
                f"channel {worst} can sum up to {largest[worst]:.3g}, its {bits}-bit accumulator holds"
                f" {2.0 ** (bits - 1):.3g}: sums wrap around on such inputs",
                "use larger weight scales or a smaller bias for this channel, or split the reduction into two layers",
            )
