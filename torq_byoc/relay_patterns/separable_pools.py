"""Divide large max pools by axis, and keep channel-last ones channel-last.

    maxpool k x k                                  becomes   maxpool 1 x k -> maxpool k x 1
    transpose (to NCHW) -> maxpool -> transpose back   becomes   window_max along rows -> window_max along columns

A maximum over a window is the maximum of the maxima of its rows: k + k elements instead of k * k.  Only pools of
stride 1 are divided: a larger stride would have the first half compute rows that the second one skips.  Exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.rescaling import is_uniform
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns.graph_editing import fresh_name, without_unused

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
_WORTHWHILE = 0.75
"""Two nodes instead of one cost programs and an intermediate; they must save at least this factor of the cycles."""


def separate_pools(graph: OpGraph, config: NpuConfig) -> OpGraph:
    """The graph with max pools divided where that pays, and without the transposes around channel-last ones."""
    editor = _Editor(graph, config)
    for node in graph.nodes:
        editor.add(node)
    return editor.finish()


@dataclass(frozen=True)
class _Half:
    """A pool along one spatial axis: 0 rows, 1 columns."""

    axis: int
    kernel: int
    dilation: int
    before: int
    after: int


class _Editor:
    """Copies a graph node by node, with other nodes in place of some."""

    def __init__(self, graph: OpGraph, config: NpuConfig) -> None:
        self.graph, self.config = graph, config
        self.readers = graph.consumers()
        self.makers = {node.output: node for node in graph.nodes}
        self.tensors = dict(graph.tensors)
        self.nodes: list[Node] = []
        self.replaced: set[str] = set()

    def add(self, node: Node) -> None:
        """Copy a node, or what takes its place."""
        if node.name in self.replaced:
            return
        halves = _halves(self.graph, node)
        back = self._transpose_behind(node) if halves else None
        if back is not None and (pair := self._channel_last(node, halves, back)):
            self.replaced.add(back.name)
            self.nodes += pair
        elif len(halves) == 2 and self._pays(node) and (pair := self._pair(node, halves)):
            self.nodes += pair
        else:
            self.nodes.append(node)

    def finish(self) -> OpGraph:
        """The edited graph, without transposes that nobody reads any more."""
        needed, kept = set(self.graph.outputs), []
        for node in reversed(self.nodes):
            if node.op != "transpose" or node.output in needed:
                kept.append(node)
                needed.update(node.inputs)
        return without_unused(replace(self.graph, nodes=tuple(kept[::-1]), tensors=self.tensors))

    def _transpose_behind(self, node: Node) -> Node | None:
        """The transpose back to NHWC behind a pool of channel-last data, if nobody else reads the pool."""
        front, readers = self.makers.get(node.inputs[0]), self.readers[node.output]
        if front is None or front.op != "transpose" or tuple(front.attrs["perm"]) != TO_NCHW:
            return None
        if len(readers) != 1 or node.output in self.graph.outputs:
            return None
        return readers[0] if readers[0].op == "transpose" and tuple(readers[0].attrs["perm"]) == TO_NHWC else None

    def _channel_last(self, node: Node, halves: Sequence[_Half], back: Node) -> list[Node]:
        """The pool on NHWC data, as the transpose behind it would give it."""
        source, found = self.makers[node.inputs[0]].inputs[0], []
        for half in halves:
            last = half is halves[-1]
            shape = list(self.tensors[source].shape)
            shape[1 + half.axis] += half.before + half.after - (half.kernel - 1) * half.dilation
            output = back.output if last else self._between(node, source, shape)
            attrs = {
                "axis": 1 + half.axis,
                "kernel": half.kernel,
                "dilation": half.dilation,
                "before": half.before,
                "pad_value": node.attrs["pad_value"],
            }
            rescale, name = (node.rescale, node.name) if last else (None, output)
            found.append(Node(name, "window_max", (source,), output, attrs, rescale, node.origin))
            source = output
        return self._if_possible(found)

    def _pair(self, node: Node, halves: Sequence[_Half]) -> list[Node]:
        """The pool along columns, then along rows."""
        rows, columns = halves
        shape = list(self.tensors[node.inputs[0]].shape)
        shape[3] = self.tensors[node.output].shape[3]
        between = self._between(node, node.inputs[0], shape)
        first_attrs = {
            **node.attrs,
            "kernel": (1, columns.kernel),
            "dilations": (1, columns.dilation),
            "pads": (0, columns.before, 0, columns.after),
        }
        second_attrs = {
            **node.attrs,
            "kernel": (rows.kernel, 1),
            "dilations": (rows.dilation, 1),
            "pads": (rows.before, 0, rows.after, 0),
        }
        return self._if_possible(
            [
                Node(between, "maxpool", node.inputs, between, first_attrs, None, node.origin),
                replace(node, inputs=(between,), attrs=second_attrs),
            ]
        )

    def _if_possible(self, nodes: list[Node]) -> list[Node]:
        """The nodes, or none when one of them is beyond its kernel: a border that the plane logic cannot express."""
        trial = replace(self.graph, tensors=self.tensors, nodes=tuple(nodes))
        return [] if any(kernel_for(node.op).unsupported(trial, node, self.config) for node in nodes) else nodes

    def _between(self, node: Node, source: str, shape: Sequence[int]) -> str:
        """A new tensor for what the first half gives: elements of the source."""
        name = fresh_name(f"{node.output}_half", self.tensors)
        self.tensors[name] = replace(self.tensors[source], name=name, shape=tuple(shape))
        return name

    def _pays(self, node: Node) -> bool:
        """Whether two passes over a plane take clearly fewer cycles than one."""
        data = self.graph.tensors[node.inputs[0]].dtype
        floor = self.config.vector_width(data, None) // self.config.act_width(data, None)
        height, width = node.attrs["kernel"]
        return max(height, floor) + max(width, floor) <= _WORTHWHILE * max(height * width, floor)


def _halves(graph: OpGraph, node: Node) -> tuple[_Half, ...]:
    """The spatial axes along which a max pool does something; none when it cannot be divided."""
    if node.op != "maxpool" or tuple(node.attrs["strides"]) != (1, 1) or not is_uniform(node.rescale):
        return ()
    kernel, pads, dilations = node.attrs["kernel"], node.attrs["pads"], node.attrs.get("dilations", (1, 1))
    sizes = [graph.tensors[node.inputs[0]].shape[2:], graph.tensors[node.output].shape[2:]]
    return tuple(
        _Half(axis, kernel[axis], dilations[axis], pads[axis], pads[2 + axis])
        for axis in (0, 1)
        if kernel[axis] > 1 or sizes[0][axis] != sizes[1][axis]
    )
