"""A bounded result that ends the model leaves the NPU in codes of 16 bits.

Before: ``y = Softmax(x)``, codes of 8 bits: steps of 1/255
After:  the same operator on the same codes of ``x``, with steps of 1/32767; or on ``x`` in codes of 16 bits as well

Where results are near their bounds the function hides what went wrong before it, and the steps of 8 bits are all the
error that is left.  Results come from tables of 16 bits in either case; it costs a byte a result.  The codes of ``x``
matter next, and more than their steps where they end: the largest of a few unseen values may lie beyond all seen, so
with 16 bits they have room for that (``observers.headroom``).

Only what does nothing but move elements may lie between the operator and the model's outputs, and between what makes
``x`` and the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from torq_byoc.frontend.graph import producers, readers
from torq_byoc.quantize import rules
from torq_byoc.quantize.choose_ranges import ROOMY
from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.wide_tensors import can_be_wide

RESULTS_ALONE = 0.5
"""Strength of the first of two alternatives."""
LEAST_SATURATED = 0.5
"""Share of a result's energy in values near its bounds from which on it is tried."""


def wide_outputs(candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere) -> Iterator[Proposal]:
    """All saturated results at the end of the model; then what they are made of as well."""
    makers, users = producers(candidate.model.graph), readers(candidate.model.graph)
    found: dict[str, onnx.NodeProto] = {}
    for value in candidate.model.graph.output:
        node = _maker(value.name, makers, users)
        if node is None or node.name in candidate.floats or not within([node.name]):
            continue
        if statistics.saturated(node.output[0]) >= LEAST_SATURATED:
            found[node.output[0]] = node
    wide = can_be_wide(candidate, found)
    if not wide:
        return
    places = tuple(found[name].name for name in wide)
    reason = f"{max(map(statistics.saturated, wide)):.0%} of the energy of a result is in values near its bounds"
    results = candidate.with_wide(wide)
    sources = can_be_wide(results, (_source(found[name].input[0], makers, users) for name in wide))
    yield Proposal(results, places, reason, RESULTS_ALONE if sources else 1.0)
    if sources:
        yield Proposal(results.with_wide(sources, ROOMY), places, reason)


def _source(name: str, makers: Mapping[str, onnx.NodeProto], users: Mapping[str, list[onnx.NodeProto]]) -> str:
    """The tensor whose elements an operator's operand consists of, as far as nothing else reads them."""
    node = makers.get(name)
    while node is not None and node.op_type in rules.SAME_SCALE and len(users.get(node.input[0], [])) == 1:
        name = node.input[0]
        node = makers.get(name)
    return name


def _maker(
    output: str, makers: Mapping[str, onnx.NodeProto], users: Mapping[str, list[onnx.NodeProto]]
) -> onnx.NodeProto | None:
    """The bounded operator whose results are an output, moved at most, and nothing else."""
    node = makers.get(output)
    while node is not None and node.op_type in rules.SAME_SCALE and len(users.get(node.input[0], [])) == 1:
        node = makers.get(node.input[0])
    return node if node is not None and node.op_type in rules.BOUNDED else None
