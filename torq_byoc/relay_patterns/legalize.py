"""Make every node of an operator graph one that its kernel runs well: explicit broadcasts and borders, lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torq_byoc.kernels.conv_filter_lanes import LANES, prefers_filter_lanes
from torq_byoc.kernels.graph import Node, OpGraph, TensorInfo
from torq_byoc.kernels.kernel import kernel_for, registered_ops
from torq_byoc.kernels.pairwise import needs_broadcast
from torq_byoc.npu_model.config import NpuConfig

_WINDOWED = ("conv2d", "maxpool", "sumpool")


def legalize(graph: OpGraph, config: NpuConfig) -> OpGraph:
    """The same graph with ``broadcast`` and ``pad`` nodes where kernels ask for them."""
    editor = _Editor(graph)
    for node in graph.nodes:
        node = _with_lanes(editor, _with_broadcasts(editor, node), config)
        editor.append(_with_border(editor, node, config))
    return editor.finish()


class _Editor:
    """Copies a graph node by node, with new nodes in between."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self.nodes: list[Node] = []

    def append(self, node: Node) -> None:
        self.nodes.append(node)

    def insert(self, op: str, source: str, shape: tuple[int, ...], attrs: dict[str, object], origin: str) -> str:
        """A new node that reads ``source``; returns its output, which keeps type and quantization."""
        info = self.tensors[source]
        name, count = f"{source}_{op}", 1
        while name in self.tensors:
            name, count = f"{source}_{op}_{count}", count + 1
        self.tensors[name] = TensorInfo(name, shape, info.dtype, info.scale, info.zero_point)
        self.append(Node(name, op, (source,), name, attrs, None, origin))
        return name

    def finish(self) -> OpGraph:
        return replace(self.graph, tensors=self.tensors, nodes=tuple(self.nodes))

    def trial(self, node: Node) -> OpGraph:
        """The graph as ``node``'s kernel must see it."""
        return replace(self.graph, tensors=self.tensors, nodes=(node,))


def _with_broadcasts(editor: _Editor, node: Node) -> Node:
    if node.op not in registered_ops():
        return node
    inputs = list(node.inputs)
    shape = editor.tensors[node.output].shape
    for position in needs_broadcast(editor.trial(node), node):
        inputs[position] = editor.insert("broadcast", inputs[position], shape, {}, node.origin)
    return replace(node, inputs=tuple(inputs))


def _with_lanes(editor: _Editor, node: Node, config: NpuConfig) -> Node:
    """Convolutions of large strides run along their filters where that is as fast: their input stays as it is."""
    if node.op != "conv2d" or not prefers_filter_lanes(editor.trial(node), node, config):
        return node
    return replace(node, attrs={**node.attrs, "lanes": LANES})


def _with_border(editor: _Editor, node: Node, config: NpuConfig) -> Node:
    """Pad by a node of its own when the window's border cannot be expressed by the plane logic."""
    if node.op not in _WINDOWED or node.op not in registered_ops():
        return node
    kernel = kernel_for(node.op)
    trial = editor.trial(node)
    if kernel.unsupported(trial, node, config) is None:
        return node
    explicit: Callable[[OpGraph, Node], tuple[int, int, int, int]] = kernel.explicit_pads  # type: ignore[attr-defined]
    top, left, bottom, right = explicit(trial, node)
    if not any((top, left, bottom, right)):
        return node
    batch, channels, rows, columns = editor.tensors[node.inputs[0]].shape
    padded = editor.insert(
        "pad",
        node.inputs[0],
        (batch, channels, rows + top + bottom, columns + left + right),
        {"before": (0, 0, top, left), "after": (0, 0, bottom, right), "value": node.attrs["pad_value"]},
        node.origin,
    )
    attrs = {**node.attrs, "pads": (0, 0, 0, 0)}
    return replace(node, inputs=(padded, *node.inputs[1:]), attrs=attrs)
