"""Channels that only depthwise convolutions read get alike sizes.

Before: ``t = Relu(Conv(x, w, b)); y = DepthwiseConv(t, v)``, channels of ``t`` up to 1 and up to 10
After:  ``t = Relu(Conv(x, s w, s b)); y = DepthwiseConv(t, v / s)``, all channels of ``t`` up to 8 or 10

Both layers have a scale for every channel, so their weights keep their codes: nothing is lost anywhere, and the codes
of ``t`` say more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_places import MOST_FACTOR, Place, channel_places, scaled
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics

_HEADROOM = 1.25
"""How far below the largest channel the others stay: each may be larger in unseen data."""
LEAST_LOSS = 1.1 * math.log2(_HEADROOM)
"""Bits that a channel lacks on average, from which on it is done: more than what it leaves itself."""


def equalize_depthwise(
    candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere
) -> Iterator[Proposal]:
    """One proposal: all such tensors with unlike channels."""
    places = [
        place
        for place in channel_places(candidate, statistics)
        if place.taken is None and place.values.missing_bits > LEAST_LOSS and within(place.source.makers)
    ]
    if not places:
        return
    alike, makers = scaled(candidate, statistics, places, _factors)
    worst = max(place.values.missing_bits for place in places)
    yield Proposal(
        alike,
        makers,
        f"channels that depthwise convolutions read use {worst:.1f} bits less than the largest, on average",
    )


def has_depthwise(model: onnx.ModelProto) -> bool:
    """Whether a model has a depthwise convolution."""
    depthwise = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) > 2 and tensor.dims[1] == 1}
    return any(
        node.op_type == "Conv" and node.input[1] in depthwise and int(attribute(node, "group", 1)) > 1
        for node in model.graph.node
    )


def _factors(place: Place) -> np.ndarray:
    """For every channel what it is multiplied with: at least 1, and 1 for channels that hold nothing."""
    peak = np.where(place.values.alive, place.values.peak, place.values.peak.max())
    return np.minimum(np.clip(peak.max() / (peak * _HEADROOM), 1.0, MOST_FACTOR), place.source.most)
