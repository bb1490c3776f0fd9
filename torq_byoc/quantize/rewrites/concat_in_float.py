"""A concatenation of unlike operands at the end of a model is left to the CPU, in float.

Before: ``y = Reshape(Concat(box, score))``: one scale for boxes up to 640 and scores up to 0.05, which all become 0
After:  ``box`` and ``score`` leave the NPU with scales of their own; Concat and Reshape move float numbers

Only what does nothing but move elements may lie between the concatenation and the model's outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from torq_byoc.frontend.graph import readers
from torq_byoc.quantize.output_parts import MOVEMENT
from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Within, anywhere
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics

MOST_RATIO = 4.0
"""Ratio of the operands' largest magnitudes from which on they are unlike: two bits."""


def concat_in_float(
    candidate: Candidate, statistics: ChannelStatistics, within: Within = anywhere
) -> Iterator[Proposal]:
    """One proposal: all unlike concatenations at the end of the model."""
    users = readers(candidate.model.graph)
    outputs = {value.name for value in candidate.model.graph.output}
    found: dict[str, float] = {}
    floats: dict[str, None] = {}
    for node in candidate.model.graph.node:
        eligible = node.op_type == "Concat" and node.name not in candidate.floats and within([node.name])
        ratio = _ratio(node, statistics) if eligible else 1.0
        tail = _tail(node, users, outputs) if ratio > MOST_RATIO else None
        if tail is not None:
            found[node.name] = ratio
            floats.update(dict.fromkeys(tail))
    if found:
        yield Proposal(
            candidate.rewritten(candidate.model, floats),
            tuple(found),
            f"the largest operand of a concatenation is {max(found.values()):.3g} times the smallest",
        )


def _ratio(node: onnx.NodeProto, statistics: ChannelStatistics) -> float:
    """The largest operand's span over the smallest's."""
    spans = [span for span in map(statistics.span, node.input) if span > 0.0]
    return max(spans) / min(spans) if spans else 1.0


def _tail(node: onnx.NodeProto, users: dict[str, list[onnx.NodeProto]], outputs: set[str]) -> list[str] | None:
    """Names of a concatenation and all that comes after it, when that only moves elements."""
    names: dict[str, None] = {}
    waiting = [node]
    while waiting:
        current = waiting.pop()
        names[current.name] = None
        for name in current.output:
            following = users.get(name, [])
            if not following and name not in outputs:
                return None
            waiting += following
        if any(user.op_type not in MOVEMENT and user.op_type != "Concat" for user in waiting):
            return None
    return list(names)
