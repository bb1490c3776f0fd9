"""What the data-movement kernels share: one tensor input or several, no arithmetic, cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Kernel, Region
from torq_byoc.npu_model.config import NpuConfig


class MovementKernel(Kernel):
    """Copies elements; input and output have the same element type."""

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """Every input, constants too."""
        del graph
        return tuple(range(len(node.inputs)))

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Anywhere along every axis."""
        del config
        return (1,) * len(graph.tensors[node.output].shape)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Moving data changes neither type nor value."""
        del config
        target = graph.tensors[node.output].dtype
        for name in node.inputs:
            if graph.tensors[name].dtype is not target:
                return f"it cannot turn {graph.tensors[name].dtype.value} into {target.value}"
        return None if node.rescale is None else "moving data has no rescale"


def intersection(first: Region, second: Region) -> Region:
    """The box that two boxes share; extent 0 on every axis when they do not touch."""
    start = [max(a, b) for a, b in zip(first.start, second.start, strict=True)]
    end = [min(a + m, b + n) for a, m, b, n in zip(first.start, first.extent, second.start, second.extent, strict=True)]
    if any(low >= high for low, high in zip(start, end, strict=True)):
        return empty(len(start))
    return Region(tuple(start), tuple(high - low for low, high in zip(start, end, strict=True)))


def empty(rank: int) -> Region:
    """The box without elements."""
    return Region((0,) * rank, (0,) * rank)


def moved(region: Region, offset: Sequence[int]) -> Region:
    """A box shifted by an offset; an empty one stays as it is."""
    if region.size == 0:
        return region
    return Region(tuple(s + o for s, o in zip(region.start, offset, strict=True)), region.extent)
