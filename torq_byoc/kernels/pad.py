"""Constant borders around a tensor: fill tasks for the border, a copy for the interior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from torq_byoc.kernels.copies import copy_task, fill_tasks
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel, intersection, moved
from torq_byoc.kernels.views import total_cost, view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Pad(MovementKernel):
    """``pad``: ``before`` and ``after`` elements of ``value`` around x on every axis."""

    op = "pad"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's constant padding."""
        value = np.asarray(node.attrs["value"]).astype(inputs[0].dtype)
        return np.pad(
            inputs[0], tuple(zip(node.attrs["before"], node.attrs["after"], strict=True)), constant_values=value
        )

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The part of the input that shows in the box; none when the box is all border."""
        del position
        return moved(_interior(graph, node, output), [-before for before in node.attrs["before"]])

    def tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """Fill the border box by box, or fill everything first: whichever is cheaper; then copy."""
        del constants
        interior = _interior(graph, node, region)

        def fill(box: Region) -> list[SliceTask]:
            return fill_tasks(view(output, box.start), box.extent, node.attrs["value"], config)

        if interior.size == 0:
            return fill(region)
        border = [task for box in _border(region, interior) for task in fill(box)]
        everything = fill(region)
        fills = min(border, everything, key=lambda tasks: total_cost(tasks, config))
        source = view(inputs[0], moved(interior, [-before for before in node.attrs["before"]]).start)
        return [*fills, copy_task(source, view(output, interior.start), interior.extent, config)]


def _interior(graph: OpGraph, node: Node, output: Region) -> Region:
    """The part of an output box that shows the input, in output coordinates."""
    shape = graph.tensors[node.inputs[0]].shape
    return intersection(output, Region(tuple(node.attrs["before"]), tuple(shape)))


def _border(region: Region, interior: Region) -> Iterator[Region]:
    """Disjoint boxes that cover a box less its interior, outer axes first."""
    start, extent = list(region.start), list(region.extent)
    for axis in range(len(start)):
        inner, size = interior.start[axis], interior.extent[axis]
        spans = ((start[axis], inner), (inner + size, start[axis] + extent[axis]))
        for low, high in spans:
            if high > low:
                yield Region(
                    (*start[:axis], low, *start[axis + 1 :]), (*extent[:axis], high - low, *extent[axis + 1 :])
                )
        start[axis], extent[axis] = inner, size
