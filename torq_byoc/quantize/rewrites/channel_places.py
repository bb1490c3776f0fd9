"""Tensors whose channels can change their sizes: what makes them can be scaled, and whoever reads them has weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.quantize import rules
from torq_byoc.quantize.rewrites.candidate import Candidate
from torq_byoc.quantize.rewrites.channel_scaling import ChannelScaling, Source, Stored, copy_of, without_unused
from torq_byoc.quantize.rewrites.channel_statistics import CHANNEL_AXES, ChannelStatistics, ChannelValues

MOST_FACTOR = 4096.0
"""By which a channel is enlarged at most."""


@dataclass(frozen=True, eq=False)
class Place:
    """A tensor whose channels can be scaled.

    Attributes:
        name: of the tensor.
        source: what makes its channels.
        readers: the weights that take them.
        values: what they hold.
        taken: for every channel the largest weight that reads it, relative to those of the same sum; None when each
            reader has a scale for every channel.
    """

    name: str
    source: Source
    readers: tuple[Stored, ...]
    values: ChannelValues
    taken: np.ndarray | None


def channel_places(candidate: Candidate, statistics: ChannelStatistics) -> Iterator[Place]:
    """All such tensors of a candidate, in graph order."""
    scaling = ChannelScaling(candidate.model, statistics)
    seen = set()
    for node in candidate.model.graph.node:
        name = node.input[0] if node.op_type in rules.WEIGHTED else ""
        if not name or name in seen:
            continue
        seen.add(name)
        axis = CHANNEL_AXES[node.op_type]
        values = statistics.of(name, axis)
        readers = scaling.readers(name, axis)
        source = scaling.source(name, axis, values.peak.size) if values is not None and readers else None
        if source is not None and values is not None and readers:
            shares = [scaling.shares(stored, values.peak.size) for stored in readers]
            taken = [share for share in shares if share is not None]
            yield Place(name, source, readers, values, np.max(taken, axis=0) if taken else None)


def scaled(
    candidate: Candidate,
    statistics: ChannelStatistics,
    places: Sequence[Place],
    factors_of: Callable[[Place], np.ndarray],
) -> tuple[Candidate, tuple[str, ...]]:
    """The candidate with the channels of some places multiplied with factors, and the names of the nodes that make
    them; the weights that read them take the inverse."""
    model = copy_of(candidate.model)
    scaling = ChannelScaling(model, statistics)
    for place in places:
        factors = factors_of(place)
        scaling.multiply(place.source, factors)
        scaling.divide(place.readers, factors)
    makers = dict.fromkeys(maker for place in places for maker in place.source.makers)
    return candidate.rewritten(without_unused(model)), tuple(makers)
