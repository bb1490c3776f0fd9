"""What the cost model knows of one node: its operands under any cut, slice cycles, and how it may be divided."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Region
from torq_byoc.kernels.portion import CarryingKernel
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules import candidates
from torq_byoc.schedules.node_operands import NodeOperands, Residency
from torq_byoc.schedules.regions import Transfer
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.slice_costs import SliceCost, SliceCosts
from torq_byoc.schedules.tiles import split_between_slices

if TYPE_CHECKING:
    from torq_byoc.schedules.traffic import TilingTable

_SPLITS = 3
"""Axes along which dividing a tile between the slices is priced, the most even ones."""


class NodeModel(NodeOperands):
    """Facts about a node that do not depend on a decision; asked lazily and remembered.

    Args:
        graph: the graph the node stands in.
        node: the node; any node of the same signature is described by the same model.
        config: the machine.

    Attributes:
        loads, boxes: what ``node_tiles`` has read back from TIR: loads by tile and portion, inputs by box.
        tables: what ``traffic`` has found out about lists of tilings, by tiles and portion.
    """

    def __init__(self, graph: OpGraph, node: Node, config: NpuConfig) -> None:
        super().__init__(graph, node, config)
        self.slices = SliceCosts(self)
        self._splits: dict[tuple[int, ...], int | None] = {}
        self.loads: dict[Hashable, Mapping[str, Transfer]] = {}
        self.boxes: dict[Region, tuple[Region, ...]] = {}
        self.tables: dict[Hashable, TilingTable] = {}

    def carried_tiles(self) -> list[tuple[int, ...]]:
        """Tiles that can be computed in portions; empty when the reduction cannot be divided."""
        return candidates.carried_tiles(self.shape, self.steps, self._carried_boxes(), self.config.slices)

    def carried_splits(self, tile: Sequence[int]) -> list[int | None]:
        """Axes along which the slices may share a tile that is computed in portions: each one's sums fit PRAM."""
        boxes, box = self._carried_boxes(), Region((0,) * len(self.shape), tuple(tile))

        def fits(axis: int | None) -> bool:
            step = 0 if axis is None else self.steps[axis]
            parts = split_between_slices(box, axis, step, self.config.slices)
            return all(any(_inside(part.extent, largest) for largest in boxes) for part in parts)

        cuttable = [axis for axis, step in enumerate(self.steps) if step and tile[axis] > step]
        return [axis for axis in (*cuttable, None) if fits(axis)]

    def _carried_boxes(self) -> tuple[tuple[int, ...], ...]:
        if not isinstance(self.kernel, CarryingKernel) or not self.reduction:
            return ()
        return self.kernel.carried_boxes(self.graph, self.node, self.config)

    def tile_cost(
        self, tile: Region, split_axis: int | None, residency: Residency, portion: tuple[int, ...] = ()
    ) -> SliceCost:
        """See ``SliceCosts.tile_cost``."""
        return self.slices.tile_cost(tile, split_axis, residency, portion)

    def even_split(self, tile: Region) -> int | None:
        """The axis along which the slices share a tile best; None when they cannot."""
        key = tile.extent
        if key not in self._splits:
            options = candidates.split_axes(key, self.steps, self.config.slices, _SPLITS)
            self._splits[key] = min(options, key=lambda axis: self.tile_cost(tile, axis, self.streamed).cycles)
        return self._splits[key]


def shared_models(
    graph: OpGraph, nodes: Sequence[Node], config: NpuConfig, slices: Mapping[str, int]
) -> dict[str, NodeModel]:
    """A model for every node name, shared between nodes of equal signature.

    Args:
        graph: the graph.
        nodes: its scheduled nodes.
        config: the machine.
        slices: how many a node may use, by name; all of them where it is not named.
    """
    shared: dict[Hashable, NodeModel] = {}
    models = {}
    for node in nodes:
        count = slices.get(node.name, config.slices)
        key = (signature(graph, node), count)
        if key not in shared:
            shared[key] = NodeModel(graph, node, config.using(count))
        models[node.name] = shared[key]
    return models


def _inside(extent: Sequence[int], largest: Sequence[int]) -> bool:
    return all(size <= most for size, most in zip(extent, largest, strict=True))
