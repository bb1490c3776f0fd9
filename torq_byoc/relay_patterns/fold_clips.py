"""Fold a clip that stands alone into the operator before it.

    conv2d -> act (codes unchanged, clip to [lo, hi])   becomes   conv2d with the clip [lo, hi]
    concat -> act (codes unchanged, clip to the type)   becomes   concat

Quantized exports often give a relu a quantize of its own with the scale of the layer before.  The codes are
then only clipped, which the layer's own rescale does for nothing, or not even that.  Exact.
"""

from __future__ import annotations

from dataclasses import replace

from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.relay_patterns.arithmetic import keeps_codes

_FOLDABLE = ("conv2d", "matmul", "sum2", "mul", "maximum", "minimum", "act", "maxpool", "sumpool", "reduce")


def fold_clips(graph: OpGraph) -> OpGraph:
    """The graph without the ``act`` nodes that only clip the codes of a tensor nobody else reads."""
    readers = graph.consumers()
    producers: dict[str, Node] = {}
    same: dict[str, str] = {}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        source = producers.get(node.inputs[0]) if node.inputs else None
        if (
            source is not None
            and _only_clips(graph, node)
            and _takes_clip(graph, source, node)
            and len(readers[source.output]) == 1
            and source.output not in graph.outputs
        ):
            del producers[source.output]
            node = _clipped(source, node)
        elif _only_clips(graph, node) and _clips_nothing(graph, node) and node.output not in graph.outputs:
            same[node.output] = node.inputs[0]
            continue
        producers[node.output] = node
    return replace(graph, nodes=tuple(producers.values()), tensors=_used(graph, tuple(producers.values())))


def _only_clips(graph: OpGraph, node: Node) -> bool:
    """An integer ACT pass whose bias, scale, shift and zero point cancel out."""
    rescale = node.rescale
    if node.op != "act" or node.attrs.get("mode", "ACT") != "ACT" or rescale is None or len(node.inputs) != 1:
        return False
    source, target = graph.tensors[node.inputs[0]], graph.tensors[node.output]
    if source.dtype is not target.dtype or source.dtype.is_float or rescale.scale is None:
        return False
    return keeps_codes(rescale)


def _clips_nothing(graph: OpGraph, node: Node) -> bool:
    low, high = graph.tensors[node.output].dtype.integer_range
    return node.rescale is not None and node.rescale.clip_min <= low and node.rescale.clip_max >= high


def _takes_clip(graph: OpGraph, node: Node, clip: Node) -> bool:
    if node.op not in _FOLDABLE or node.rescale is None or node.attrs.get("mode", "ACT") != "ACT":
        return False
    return graph.tensors[node.output].dtype is graph.tensors[clip.output].dtype


def _clipped(node: Node, clip: Node) -> Node:
    """``node`` with the tighter clip, under the clip's name."""
    assert node.rescale is not None and clip.rescale is not None
    low, high = clip.rescale.clip_min, clip.rescale.clip_max
    bounds = [min(max(bound, low), high) for bound in (node.rescale.clip_min, node.rescale.clip_max)]
    rescale: Rescale = replace(node.rescale, clip_min=bounds[0], clip_max=bounds[1])
    origin = "+".join(dict.fromkeys(f"{node.origin}+{clip.origin}".strip("+").split("+")))
    return replace(node, name=clip.name, output=clip.output, rescale=rescale, origin=origin)


def _used(graph: OpGraph, nodes: tuple[Node, ...]) -> dict:  # type: ignore[type-arg]
    names = {*graph.inputs, *graph.constants, *graph.outputs}
    for node in nodes:
        names.update((*node.inputs, node.output))
    return {name: info for name, info in graph.tensors.items() if name in names}
