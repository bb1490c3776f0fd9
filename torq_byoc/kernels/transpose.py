"""Axis permutation: a copy block by block, or gathered along the output's inner axis, or scattered; pairs as words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.dsl import build
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.interleave import interleaves, interleaving_nest, pair_weights
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel
from torq_byoc.kernels.views import view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Transpose(MovementKernel):
    """``transpose``: output axis k is input axis perm[k]."""

    op = "transpose"
    translates = True
    moves = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's transposition."""
        del graph
        return np.ascontiguousarray(inputs[0].transpose(node.attrs["perm"]))

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The box with its axes permuted back."""
        del graph, position
        order = np.argsort(node.attrs["perm"])
        return Region(tuple(output.start[axis] for axis in order), tuple(output.extent[axis] for axis in order))

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The weights of pairs, where bytes are interleaved."""
        del config
        info = graph.tensors[node.output]
        return (pair_weights(),) if interleaves(info.shape, node.attrs["perm"], info.dtype) else ()

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
        """One copy, or one sum of pairs."""
        source = view(inputs[0], self.input_region(graph, node, 0, region).start).permuted(node.attrs["perm"])
        target = view(output, region.start)
        pairs = interleaving_nest(source, target, region.extent, constants[0].granule(0)) if constants else None
        return [build(pairs, config) if pairs else copy_task(source, target, region.extent, config)]


@register
class Reordered(Transpose):
    """``reordered``: a transposition that loads make; the tasks are a copy, for code that does not alias."""

    op = "reordered"

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Only what lies in XRAM is read in another order."""
        del config
        return None if node.inputs[0] in graph.inputs else "only graph inputs are loaded in another order"
