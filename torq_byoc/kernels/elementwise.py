"""What element-wise kernels share: every output element depends on one element of each (broadcast) input."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Kernel, Placement, Region
from torq_byoc.kernels.views import View, broadcast_region, broadcast_view, view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType


class ElementwiseKernel(Kernel):
    """All inputs are tensors that broadcast to the output; the output may be cut anywhere."""

    translates = True
    moves = True

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """Every input, constants too."""
        del graph
        return tuple(range(len(node.inputs)))

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The same box, 1 along broadcast axes."""
        return broadcast_region(graph.tensors[node.inputs[position]].shape, output)

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Anywhere along every axis."""
        del config
        return (1,) * len(graph.tensors[node.output].shape)

    def views(
        self, graph: OpGraph, node: Node, region: Region, output: Placement, inputs: Sequence[Placement]
    ) -> tuple[View, list[View]]:
        """The output box of a dense tile, and the tensor inputs over it."""
        return view(output, region.start), self.operands(graph, node, region, inputs)

    def operands(self, graph: OpGraph, node: Node, region: Region, inputs: Sequence[Placement]) -> list[View]:
        """The tensor inputs over an output box."""
        positions = self.tensor_inputs(graph, node)
        shapes = [graph.tensors[node.inputs[position]].shape for position in positions]
        return [broadcast_view(tile, shape, region) for tile, shape in zip(inputs, shapes, strict=True)]


def input_types(graph: OpGraph, node: Node) -> tuple[DType, ...]:
    """Element types of a node's inputs."""
    return tuple(graph.tensors[name].dtype for name in node.inputs)


def broadcast_axes(graph: OpGraph, node: Node, position: int) -> tuple[int, ...]:
    """Output axes along which an input is repeated."""
    shape, out = graph.tensors[node.inputs[position]].shape, graph.tensors[node.output].shape
    aligned = (1,) * (len(out) - len(shape)) + tuple(shape)
    return tuple(axis for axis, (size, extent) in enumerate(zip(aligned, out, strict=True)) if size != extent)


def product_of(extents: Sequence[int], axes: Sequence[int]) -> int:
    """Product of the extents along some axes."""
    return math.prod(extents[axis] for axis in axes)
