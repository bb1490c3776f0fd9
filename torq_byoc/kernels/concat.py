"""Concatenation: one copy for every input that a tile touches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel, intersection, moved
from torq_byoc.kernels.views import view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Concat(MovementKernel):
    """``concat``: the inputs one after the other along ``axis``."""

    op = "concat"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's concatenation."""
        del graph
        return np.concatenate(inputs, axis=node.attrs["axis"])

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The part of an input that lies in the box; extent 0 when none does."""
        part, offset = _part(graph, node, position, output)
        return moved(part, [-distance for distance in offset])

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
        tasks = []
        for position, placement in enumerate(inputs):
            part, offset = _part(graph, node, position, region)
            if part.size:
                source = view(placement, moved(part, [-distance for distance in offset]).start)
                tasks.append(copy_task(source, view(output, part.start), part.extent, config))
        return tasks


def _part(graph: OpGraph, node: Node, position: int, output: Region) -> tuple[Region, list[int]]:
    """What an input contributes to an output box, in output coordinates, and where the input begins."""
    shapes = [graph.tensors[name].shape for name in node.inputs]
    axis = node.attrs["axis"] % len(output.start)
    offset = [0] * len(output.start)
    offset[axis] = sum(shape[axis] for shape in shapes[:position])
    return intersection(output, Region(tuple(offset), tuple(shapes[position]))), offset
