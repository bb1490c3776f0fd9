"""Rescale with entries computed at run time, such as the reciprocal of each row's sum in a softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.pair_tensor import entries_problem, entries_region, entries_view
from torq_byoc.kernels.rescaling import is_identity
from torq_byoc.kernels.results import finish, node_act, widen
from torq_byoc.kernels.unary import unary_task
from torq_byoc.kernels.views import broadcast_view, view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActMode, SliceTask


@register
class ScaleRows(ElementwiseKernel):
    """``scale_rows``: y = ((x + bias) * scale, rounded, >> shift) + zero point, clipped; bias and scale are
    the second input, shift, zero point and clip the node's rescale."""

    op = "scale_rows"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """ACT with the entries of the second input."""
        data, entries = inputs
        scale = None if entries.shape[-1] == 1 else entries[..., 1]
        return finish(graph, node, widen(data), input_types(graph, node)[:1], bias=entries[..., 0], scale=scale)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Entries of the right layout; the node's rescale has none of its own."""
        del config
        data, target = input_types(graph, node)[0], graph.tensors[node.output].dtype
        if data.is_float != target.is_float:
            return f"a rescale does not turn {data.value} into {target.value}"
        if not is_identity(node.rescale):
            return "bias and scale come from the second input, the rescale must leave them at 0 and 1"
        return entries_problem(graph, node, data)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The same box of the data; the entries of that box."""
        if position == 1:
            return entries_region(graph.tensors[node.inputs[1]].shape, output)
        return super().input_region(graph, node, position, output)

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
        """One pass; entries that are equal along the lanes cost nothing, others narrow ACT."""
        del constants
        data, entries = (graph.tensors[name] for name in node.inputs)
        source = broadcast_view(inputs[0], data.shape, region)
        bias = entries_view(inputs[1], entries.shape, region)
        act = node_act(node, ActMode.ACT, data.dtype)
        return [unary_task(view(output, region.start), source, bias, region.extent, act, config)]
