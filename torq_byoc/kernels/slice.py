"""Strided slices: a copy whose source strides are multiples of the tensor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel
from torq_byoc.kernels.views import view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Slice(MovementKernel):
    """``slice``: elements begin + i * step of x, as many as the output has; ``step`` is 1 when left out."""

    op = "slice"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's basic slicing."""
        shape = graph.tensors[node.output].shape
        windows = tuple(
            slice(begin, begin + (size - 1) * step + 1, step)
            for begin, step, size in zip(node.attrs["begin"], _steps(node), shape, strict=True)
        )
        return np.ascontiguousarray(inputs[0][windows])

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """From the first element read to the last."""
        del graph, position
        steps = _steps(node)
        start = (
            begin + first * step for begin, first, step in zip(node.attrs["begin"], output.start, steps, strict=True)
        )
        extent = ((size - 1) * step + 1 for size, step in zip(output.extent, steps, strict=True))
        return Region(tuple(start), tuple(extent))

    def copied(self, graph: OpGraph, node: Node) -> Mapping[int, tuple[int, ...]]:
        """The input, from where the slice begins, if no element is skipped."""
        del graph
        return {0: tuple(-begin for begin in node.attrs["begin"])} if set(_steps(node)) <= {1} else {}

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
        source = view(inputs[0], self.input_region(graph, node, 0, region).start)
        strides = tuple(stride * step for stride, step in zip(source.strides, _steps(node), strict=True))
        return [copy_task(replace(source, strides=strides), view(output, region.start), region.extent, config)]


def _steps(node: Node) -> tuple[int, ...]:
    return tuple(node.attrs.get("step", (1,) * len(node.attrs["begin"])))
