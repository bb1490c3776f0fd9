"""An input with outliers becomes two tensors with scales of their own: the usual values, and what goes beyond them.

Before: ``y = Conv(x, w, b)``, ``x`` up to 200 although most of it is below 2: steps of 8 bits are as large as that
After:  ``u = Clip(x, -c, c); o = x - u; y = Add(Conv(u, w, b), Conv(o, w))``, ``u`` with fine steps, ``o`` mostly zero

The CPU splits the input in float, before it is quantized; channels that stay within ``c`` have no second part.  That
weights are read twice is what distinguishes outlier channel splitting (Zhao et al., "Improving Neural Network
Quantization without Retraining using Outlier Channel Splitting", ICML 2019) too; there both parts share a scale, which
halves the range, while the two regions of Fang et al. ("Post-Training Piecewise Linear Quantization for Deep Neural
Networks", ECCV 2020) have steps of their own, as here.

It is the only rewrite that costs time on the NPU: the layer is computed twice for the channels with outliers.  So it
has to gain more than others, and never adds more than a part of the model's work.  What is mostly zero can spare codes
for values larger than any seen (``observers.headroom``), of which inputs of this kind will have some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.quantize import rules
from torq_byoc.quantize.choose_ranges import ROOMY
from torq_byoc.quantize.macs import layer_macs
from torq_byoc.quantize.observers.headroom import ROOM
from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_scaling import copy_of
from torq_byoc.quantize.rewrites.channel_statistics import CHANNEL_AXES, ChannelStatistics
from torq_byoc.quantize.rewrites.input_split import InputSplit

LEAST_CREST = 24.0
"""Largest value over the usual size from which on an input has outliers: 8 bits then keep 25 dB of it, where they keep
40 of normally distributed values."""
BITS = (3, 4)
"""By how many bits the usual values are smaller than the largest, from the mildest to the strongest."""
LEAST_GAIN = 3.0
"""Decibels of merit for which the layers' time is spent."""
MOST_ADDED = 0.5
"""Multiply-accumulates that may be added, over those of the model."""


@dataclass(frozen=True, eq=False)
class _Place:
    """An input with outliers.

    Attributes:
        name: of the input.
        axis: of its channels.
        layers: names of the nodes that read it with weights.
        peak: largest magnitude of every channel.
        ungrouped: whether every layer's weights can do with some channels alone.
        crest: see ``ChannelStatistics.crest``.
    """

    name: str
    axis: int
    layers: tuple[str, ...]
    peak: np.ndarray
    ungrouped: bool
    crest: float

    def bound(self, bits: int) -> float:
        """The largest usual value."""
        return float(np.float32(self.peak.max() / 2**bits))

    def chosen(self, bits: int) -> np.ndarray:
        """Indices of the channels with a second part: those that may leave the usual values, unseen data included."""
        if not self.ungrouped:
            return np.arange(self.peak.size)
        return np.flatnonzero(self.peak * ROOM > self.bound(bits))

    def added(self, bits: int, macs: dict[str, int]) -> float:
        """Multiply-accumulates that the second part takes."""
        return sum(macs[name] for name in self.layers) * self.chosen(bits).size / self.peak.size


def split_outliers(
    candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere
) -> Iterator[Proposal]:
    """All inputs with outliers, as far as the work that may be added goes, with one bound after the other."""
    places = [place for place in _places(candidate, statistics) if within(place.layers)]
    macs = layer_macs(candidate.model)
    total = sum(macs.values())
    for bits in BITS:
        kept: list[_Place] = []
        added = 0.0
        for place in sorted(places, key=lambda each: each.added(bits, macs)):
            if added + place.added(bits, macs) <= MOST_ADDED * total:
                kept.append(place)
                added += place.added(bits, macs)
        if kept:
            yield _proposal(candidate, kept, bits, added / total)


def _proposal(candidate: Candidate, places: Sequence[_Place], bits: int, added: float) -> Proposal:
    split = InputSplit(copy_of(candidate.model))
    for place in places:
        split.apply(place.name, place.axis, place.layers, place.bound(bits), place.chosen(bits))
    crest = max(place.crest for place in places)
    return Proposal(
        candidate.rewritten(split.finished(), split.floats, dict.fromkeys(split.sparse, ROOMY)),
        tuple(dict.fromkeys(name for place in places for name in place.layers)),
        f"values of an input are up to {crest:.0f} times its usual size; computing with these apart takes {added:.0%}"
        " more multiply-accumulates",
        bits / BITS[-1],
        LEAST_GAIN,
    )


def _places(candidate: Candidate, statistics: ChannelStatistics) -> Iterator[_Place]:
    editor = GraphEditor(candidate.model)
    for value in candidate.model.graph.input:
        crest = statistics.crest(value.name)
        if crest < LEAST_CREST:
            continue
        layers = [
            node
            for node in editor.readers.get(value.name, [])
            if node.name not in candidate.floats and _reads_with_weights(node, value.name, editor)
        ]
        axes = {CHANNEL_AXES[node.op_type] for node in layers}
        values = statistics.of(value.name, axes.pop()) if len(axes) == 1 else None
        if values is not None:
            yield _Place(
                value.name,
                CHANNEL_AXES[layers[0].op_type],
                tuple(node.name for node in layers),
                values.peak,
                all(int(attribute(node, "group", 1)) == 1 for node in layers),
                crest,
            )


def _reads_with_weights(node: onnx.NodeProto, name: str, editor: GraphEditor) -> bool:
    """Whether a node is a layer whose stored float weights take the channels of a tensor."""
    if node.op_type not in rules.WEIGHTED or list(node.input).count(name) != 1 or node.input[0] != name:
        return False
    weights = editor.array(node.input[1])
    return weights is not None and weights.dtype == np.float32 and weights.ndim > 1 and not attribute(node, "transA", 0)
