"""A convolution writes its channels in the order in which a channel shuffle wants them.

    conv2d -> reshape [N, G, n, H, W] -> transpose (0, 2, 1, 3, 4) -> reshape [N, n * G, H, W]
    becomes   conv2d with its filters in that order

The filters of one group may stand in any order; those of G groups become a convolution with interleaved groups.
Nothing is computed for the shuffle any more, and nothing stored in between.  Exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.kernels.conv_reference import separated
from torq_byoc.kernels.graph import Node, OpGraph, Rescale, TensorInfo

_SWAP = (0, 2, 1, 3, 4)


def absorb_channel_shuffles(graph: OpGraph) -> OpGraph:
    """The graph without the channel shuffles of what only they read."""
    found = list(_shuffles(graph))
    replaced = {shuffle.last.output: shuffle for shuffle in found}
    gone = {node.output for shuffle in found for node in (shuffle.conv, *shuffle.between)}
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        if node.output in replaced:
            node = replaced[node.output].lowered(tensors, constants)
        elif node.output in gone:
            continue
        nodes.append(node)
    read = {*graph.outputs, *(name for node in nodes for name in node.inputs)}
    for name in {*gone, *(shuffle.conv.inputs[1] for shuffle in found)} - read:
        del tensors[name]
        constants.pop(name, None)
    return replace(graph, nodes=tuple(nodes), tensors=tensors, constants=constants)


@dataclass(frozen=True)
class _Shuffle:
    """A convolution, the nodes after it, the last of them, and the G of its shape."""

    conv: Node
    between: tuple[Node, ...]
    last: Node
    groups: int

    def lowered(self, tensors: dict[str, TensorInfo], constants: dict[str, np.ndarray]) -> Node:
        """The convolution that makes the result, under the result's name; its weights join the tensors."""
        conv, weight = self.conv, constants[self.conv.inputs[1]]
        name = f"{self.last.output}_weights"
        constants[name] = separated(weight, weight.shape[0] // self.groups)
        tensors[name] = replace(tensors[conv.inputs[1]], name=name)
        attrs: Mapping[str, object] = conv.attrs
        if int(conv.attrs.get("groups", 1)) > 1:
            attrs = {**attrs, "interleaved": True}
        rescale = None if conv.rescale is None else self._entries(conv.rescale, weight.shape[0])
        inputs = (conv.inputs[0], name, *conv.inputs[2:])
        origin = "+".join(dict.fromkeys(node.origin for node in (conv, *self.between, self.last) if node.origin))
        return Node(self.last.name, "conv2d", inputs, self.last.output, attrs, rescale, origin)

    def _entries(self, rescale: Rescale, channels: int) -> Rescale:
        """Bias and scale of each channel at its new place."""

        def moved(entries: np.ndarray) -> np.ndarray:
            each = np.ndim(entries) and len(entries) == channels > 1
            return separated(entries, channels // self.groups) if each else entries

        scale = None if rescale.scale is None else moved(rescale.scale)
        return replace(rescale, bias=moved(rescale.bias), scale=scale)


def _shuffles(graph: OpGraph) -> Iterator[_Shuffle]:
    makers, readers = {node.output: node for node in graph.nodes}, graph.consumers()

    def maker(name: str) -> Node | None:
        """Who makes a tensor that nobody else needs."""
        alone = len(readers[name]) == 1 and name not in graph.outputs
        return makers.get(name) if alone else None

    for last in graph.nodes:
        swap = maker(last.inputs[0]) if last.op == "reshape" else None
        split = maker(swap.inputs[0]) if swap and swap.op == "transpose" else None
        conv = maker(split.inputs[0]) if split and split.op == "reshape" else None
        if swap and split and conv and conv.op == "conv2d" and tuple(swap.attrs["perm"]) == _SWAP:
            shape, whole = graph.tensors[split.output].shape, graph.tensors[conv.output].shape
            divides = shape == (whole[0], shape[1], whole[1] // shape[1], *whole[2:])
            fits = int(conv.attrs.get("groups", 1)) in (1, shape[1]) and not conv.attrs.get("interleaved")
            if divides and fits and graph.tensors[last.output].shape == whole and conv.inputs[1] in graph.constants:
                yield _Shuffle(conv, (split, swap), last, shape[1])
