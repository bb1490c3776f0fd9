"""Repetition of a tensor to a larger shape: a copy whose source stands still along the new axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel
from torq_byoc.kernels.views import broadcast_region, broadcast_view, view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Broadcast(MovementKernel):
    """``broadcast``: x under numpy's rules to the output's shape."""

    op = "broadcast"
    translates = True
    moves = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's broadcast, as an array of its own."""
        return np.array(np.broadcast_to(inputs[0], graph.tensors[node.output].shape))

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The box, 1 along repeated axes."""
        return broadcast_region(graph.tensors[node.inputs[position]].shape, output)

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
        """One copy."""
        del constants
        source = broadcast_view(inputs[0], graph.tensors[node.inputs[0]].shape, region)
        return [copy_task(source, view(output, region.start), region.extent, config)]
