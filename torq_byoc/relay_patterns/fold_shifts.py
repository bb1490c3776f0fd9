"""Fold an ``act`` that only moves and clips codes into the operator before it.

    conv2d -> act (code + d, clip to [lo, hi])          becomes   conv2d with zero point + d and the clip
    concat -> act (codes unchanged, clip to the type)   becomes   concat

Quantized exports often give a relu a quantize of its own with the scale of the layer before, and a multiplication
by a constant one whose scale differs by that constant alone.  The codes are then only clipped, or moved to another
zero point, which the layer's own rescale does for nothing.  What counts is what a pass does to every code there is,
not how its multiplier is written.  Exact.
"""

from __future__ import annotations

from dataclasses import replace

from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.numerics import clip_bounds
from torq_byoc.relay_patterns.code_shift import CodeShift, code_shift
from torq_byoc.relay_patterns.graph_editing import without_unused

_FOLDABLE = ("conv2d", "matmul", "sum2", "mul", "maximum", "minimum", "act", "maxpool", "sumpool", "reduce")


def fold_shifts(graph: OpGraph) -> OpGraph:
    """The graph without the ``act`` nodes that only move and clip the codes of a tensor nobody else reads."""
    readers = graph.consumers()
    producers: dict[str, Node] = {}
    same: dict[str, str] = {}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        shift = _shift_of(graph, node)
        if shift is not None:
            source = producers.get(node.inputs[0])
            alone = len(readers[node.inputs[0]]) == 1 and node.inputs[0] not in graph.outputs
            if source is not None and alone and _takes_clip(graph, source, node):
                del producers[source.output]
                node = _clipped(graph, source, node, shift)
            elif shift.changes_nothing(*_types(graph, node)) and node.output not in graph.outputs:
                same[node.output] = node.inputs[0]
                continue
        producers[node.output] = node
    return without_unused(replace(graph, nodes=tuple(producers.values())))


def _shift_of(graph: OpGraph, node: Node) -> CodeShift | None:
    """What an ACT pass does to the codes of its operand if that is no more than a move and a clip."""
    if node.op != "act" or node.attrs.get("mode", "ACT") != "ACT" or node.rescale is None or len(node.inputs) != 1:
        return None
    return code_shift(node.rescale, *_types(graph, node))


def _types(graph: OpGraph, node: Node) -> tuple[DType, DType]:
    return graph.tensors[node.inputs[0]].dtype, graph.tensors[node.output].dtype


def _takes_clip(graph: OpGraph, node: Node, clip: Node) -> bool:
    """Whether a node can write the codes of ``clip``, which take as many bytes as its own."""
    if node.op not in _FOLDABLE or node.rescale is None or node.attrs.get("mode", "ACT") != "ACT":
        return False
    mine, wanted = graph.tensors[node.output].dtype, graph.tensors[clip.output].dtype
    return not mine.is_float and mine.size == wanted.size


def _clipped(graph: OpGraph, node: Node, clip: Node, shift: CodeShift) -> Node:
    """``node`` with the moved zero point and the tighter clip, under the clip's name."""
    assert node.rescale is not None
    own = clip_bounds(node.rescale.clip_min, node.rescale.clip_max, graph.tensors[node.output].dtype)
    low, high = (min(max(bound + shift.by, shift.low), shift.high) for bound in own)
    zero_point = node.rescale.zero_point + shift.by
    rescale: Rescale = replace(node.rescale, zero_point=zero_point, clip_min=low, clip_max=high)
    origin = "+".join(dict.fromkeys(f"{node.origin}+{clip.origin}".strip("+").split("+")))
    return replace(node, name=clip.name, output=clip.output, rescale=rescale, origin=origin)
