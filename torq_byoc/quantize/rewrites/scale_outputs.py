"""Channels of a model's output get alike sizes on the NPU, and their own again on the CPU.

Before: ``y = Relu(Conv(x, w, b))``, one scale for channels up to 5 and up to 0.5
After:  ``t = Relu(Conv(x, s w, s b)); y = Mul(t, 1 / s)``, the product in float after the result has left the NPU

The CPU multiplies each code with a scale in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto, helper

from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_places import MOST_FACTOR
from torq_byoc.quantize.rewrites.channel_scaling import ChannelScaling, Source, copy_of, without_unused
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics, ChannelValues

MOST_LOSS = 0.75
"""Bits that a channel lacks on average, from which on it is tried."""
_HEADROOM = 1.25


def scale_outputs(candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere) -> Iterator[Proposal]:
    """One proposal: all outputs with unlike channels that a layer with weights makes."""
    model = copy_of(candidate.model)
    scaling = ChannelScaling(model, statistics)
    products: list[str] = []
    makers: list[str] = []
    worst = 0.0
    for value in candidate.model.graph.output:
        place = _place(value.name, scaling, statistics)
        if place is None or not within(place[1].makers):
            continue
        axis, source, values = place
        factors = _factors(values, source.most)
        scaling.multiply(source, factors)
        products.append(_restore(scaling, value.name, axis, factors))
        makers += source.makers
        worst = max(worst, values.missing_bits)
    if products:
        yield Proposal(
            candidate.rewritten(without_unused(model), products),
            tuple(dict.fromkeys(makers)),
            f"channels of an output use {worst:.1f} bits less than its largest, on average",
        )


def _place(
    name: str, scaling: ChannelScaling, statistics: ChannelStatistics
) -> tuple[int, Source, ChannelValues] | None:
    """Axis, maker and values of an output's channels, where they are unlike."""
    if scaling.editor.readers.get(name):
        return None
    for axis in (1, -1):
        values = statistics.of(name, axis)
        if values is None or values.missing_bits <= MOST_LOSS:
            continue
        source = scaling.source(name, axis, values.peak.size)
        if source is not None:
            return axis, source, values
    return None


def _factors(values: ChannelValues, most: np.ndarray) -> np.ndarray:
    peak = np.where(values.alive, values.peak, values.peak.max())
    return np.minimum(np.clip(peak.max() / (peak * _HEADROOM), 1.0, MOST_FACTOR), most)


def _restore(scaling: ChannelScaling, name: str, axis: int, factors: np.ndarray) -> str:
    """Multiply an output with the inverse factors; returns the name of the product's node."""
    editor = scaling.editor
    producer = editor.producers[name]
    rank = len(editor.shapes[name])
    spread = [-1 if position == axis % rank else 1 for position in range(rank)]
    inverse = editor.add_constant((1.0 / factors).astype(np.float32).reshape(spread), f"{name}_sizes")
    alike = editor.fresh_name(f"{name}_alike")
    producer.output[list(producer.output).index(name)] = alike
    product = helper.make_node("Mul", [alike, inverse], [name], editor.fresh_name(f"{name}_own_sizes"))
    editor.graph.node.append(product)
    shape = editor.static_shape(name)
    editor.graph.value_info.append(helper.make_tensor_value_info(alike, TensorProto.FLOAT, shape))
    return str(product.name)
