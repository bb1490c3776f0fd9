"""Concatenation: one copy for every input that a tile touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel, intersection, moved
from torq_byoc.kernels.result_boxes import result_boxes
from torq_byoc.kernels.views import view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Concat(MovementKernel):
    """``concat``: the inputs one after the other along ``axis``."""

    op = "concat"
    writes_phases = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's concatenation."""
        del graph
        return np.concatenate(inputs, axis=node.attrs["axis"])

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The part of an input that lies in the box; extent 0 when none does."""
        part, offset = _part(graph, node, position, output)
        return moved(part, [-distance for distance in offset])

    def copied(self, graph: OpGraph, node: Node) -> Mapping[int, tuple[int, ...]]:
        """Every input, from where it begins."""
        whole = Region.whole(graph.tensors[node.output].shape)
        return {position: tuple(_part(graph, node, position, whole)[1]) for position in range(len(node.inputs))}

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
        """Copies in the order of the inputs."""
        del constants
        tasks: list[SliceTask] = []
        for position, placement in enumerate(inputs):
            part, offset = _part(graph, node, position, region)
            if part.size and placement.region.size:
                source = view(placement, moved(part, [-distance for distance in offset]).start)
                boxes = result_boxes(output, part, [source])
                tasks += [copy_task(box.operands[0], box.target, box.extent, config) for box in boxes]
        return tasks


def _part(graph: OpGraph, node: Node, position: int, output: Region) -> tuple[Region, list[int]]:
    """What an input contributes to an output box, in output coordinates, and where the input begins."""
    shapes = [graph.tensors[name].shape for name in node.inputs]
    axis = node.attrs["axis"] % len(output.start)
    offset = [0] * len(output.start)
    offset[axis] = sum(shape[axis] for shape in shapes[:position])
    return intersection(output, Region(tuple(offset), tuple(shapes[position]))), offset
