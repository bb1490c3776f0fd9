"""Operators that give the same bytes another shape or element type; code generation moves nothing for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Kernel, Placement, Region, register
from torq_byoc.kernels.views import View
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


class _Alias(Kernel):
    """Whole tensors only; the tasks are one dense copy, for code that does not alias."""

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """The only input."""
        del graph, node
        return (0,)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """All of it."""
        del output
        return Region.whole(graph.tensors[node.inputs[position]].shape)

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Never cut."""
        del config
        return (0,) * len(graph.tensors[node.output].shape)

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
        """One copy of the dense bytes."""
        del graph, node, constants
        size = output.dtype.size
        source, target = (View(tile.address, output.dtype, (size,)) for tile in (inputs[0], output))
        return [copy_task(source, target, (region.size,), config)]


@register
class Reshape(_Alias):
    """``reshape``: row-major order kept."""

    op = "reshape"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's reshape."""
        return inputs[0].reshape(graph.tensors[node.output].shape)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """The element type stays."""
        del config
        source, target = graph.tensors[node.inputs[0]], graph.tensors[node.output]
        return None if source.dtype is target.dtype else "a reshape keeps the element type"


@register
class Bitcast(_Alias):
    """``bitcast``: the same bits read as another type of the same size."""

    op = "bitcast"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's view."""
        info = graph.tensors[node.output]
        return np.ascontiguousarray(inputs[0]).view(info.dtype.numpy).reshape(info.shape)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Elements of one size."""
        del config
        source, target = graph.tensors[node.inputs[0]].dtype, graph.tensors[node.output].dtype
        return None if source.size == target.size else f"{source.value} and {target.value} differ in size"
