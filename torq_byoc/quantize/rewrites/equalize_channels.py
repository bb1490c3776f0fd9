"""Channels of one tensor get alike sizes, so that one scale suits them all.

Before: ``t = Relu(Conv(x, w, b)); y = Conv(t, v)``, channels of ``t`` between 0.01 and 10
After:  ``t = Relu(Conv(x, s w, s b)); y = Conv(t, v / s)``, all channels of ``t`` near 10

Whatever makes the channels takes the factors: a convolution or dense layer (cross-layer equalization), or the gains of
a normalization or of a multiplication (SmoothQuant).  Whoever reads them has weights that take the inverse.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_places import MOST_FACTOR, Place, channel_places, scaled
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics

STRENGTHS = (0.5, 0.75, 1.0)
"""Share of the difference between channels that goes into the weights."""
MOST_LOSS = 4.0
"""Bits that a channel lacks on average, from which on equalization is tried.  Most networks have one to three, and
lose little by them: sums over many channels live by the large ones."""


def equalize_channels(
    candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere
) -> Iterator[Proposal]:
    """All unlike tensors of the model at once, with one strength after the other."""
    places = [
        place
        for place in channel_places(candidate, statistics)
        if place.values.missing_bits > MOST_LOSS and within(place.source.makers)
    ]
    if not places:
        return
    worst = max(place.values.missing_bits for place in places)
    reason = f"channels of one tensor use {worst:.1f} bits less than its largest, on average"
    strengths = STRENGTHS if any(place.taken is not None for place in places) else STRENGTHS[-1:]
    for strength in strengths:
        alike, makers = scaled(candidate, statistics, places, partial(_factors, strength=strength))
        yield Proposal(alike, makers, reason, strength)


def _factors(place: Place, strength: float) -> np.ndarray:
    """For every channel what it is multiplied with: at least 1, and 1 for channels that hold nothing."""
    alive, peak = place.values.alive, place.values.peak
    wanted = 1.0 / np.where(alive, peak, peak.max())
    if place.taken is not None:
        taken = np.maximum(place.taken, place.taken.max() / MOST_FACTOR)
        wanted = taken ** (1.0 - strength) * wanted**strength
    relative = np.where(alive, wanted / wanted[alive].min(), 1.0)
    return np.minimum(np.minimum(relative, MOST_FACTOR), place.source.most)
