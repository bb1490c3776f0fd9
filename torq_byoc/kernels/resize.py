"""Nearest-neighbour enlargement by integer factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.movement import MovementKernel
from torq_byoc.kernels.unary import unary_task
from torq_byoc.kernels.views import View, total_cost, view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, SliceTask


@register
class ResizeNearest(MovementKernel):
    """``resize_nearest``: output pixel (y, x) is input pixel (y // fy, x // fx)."""

    op = "resize_nearest"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """numpy's repetition along both image axes."""
        del graph
        rows, columns = node.attrs["factors"]
        return inputs[0].repeat(rows, axis=-2).repeat(columns, axis=-1)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The pixels that the box repeats."""
        del graph, position
        factors = _factors(node, len(output.start))
        start = tuple(first // factor for first, factor in zip(output.start, factors, strict=True))
        extent = tuple(size // factor for size, factor in zip(output.extent, factors, strict=True))
        return Region(start, extent)

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """At whole input pixels on the image axes."""
        del config
        return _factors(node, len(graph.tensors[node.output].shape))

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The factor that doubles a byte, where elements are bytes and columns repeat an even number of times."""
        del config
        if graph.tensors[node.output].dtype.size != 1 or node.attrs["factors"][1] % 2:
            return ()
        return (PackedConstant("double", np.array([[0, 0x0101]], np.int32).view(np.uint8)),)

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
        """The cheapest of: all at once; dense copies of each group's first row; bytes doubled by arithmetic."""
        pixels = self.input_region(graph, node, 0, region)
        rows, columns = node.attrs["factors"]
        source = view(inputs[0], pixels.start)
        blocks = _blocks(view(output, region.start), rows, columns)
        repeated = replace(source, strides=(*source.strides, 0, 0))
        options = [[copy_task(repeated, blocks, (*pixels.extent, rows, columns), config)]]
        if rows > 1:
            options.append(_row_by_row(source, blocks, (*pixels.extent, rows, columns), config))
        if constants:
            factor = View(constants[0].granule(0), DType.INT32, (0,) * len(repeated.strides))
            options.append([_doubled(repeated, blocks, factor, (*pixels.extent, rows, columns // 2), config)])
        return min(options, key=lambda tasks: total_cost(tasks, config))


def _blocks(target: View, rows: int, columns: int) -> View:
    """The output over input pixels and, innermost, the rows and columns that each of them becomes."""
    *lead, row, column = target.strides
    return replace(target, strides=(*lead, row * rows, column * columns, row, column))


def _row_by_row(source: View, blocks: View, extent: Sequence[int], config: NpuConfig) -> list[SliceTask]:
    """Enlarge each row once, then copy the enlarged row to the other rows of its group."""
    *pixels, rows, columns = extent
    *lead, row, column = blocks.strides
    line = replace(blocks, strides=(*lead, column))
    enlarge = copy_task(replace(source, strides=(*source.strides, 0)), line, (*pixels, columns), config)
    first = replace(line, strides=(*line.strides, 0))
    others = View(line.address + row, line.dtype, (*line.strides, row))
    return [enlarge, copy_task(first, others, (*pixels, columns, rows - 1), config)]


def _doubled(source: View, blocks: View, factor: View, extent: Sequence[int], config: NpuConfig) -> SliceTask:
    """Two equal bytes at once: byte v becomes the 16-bit number v * 0x0101."""
    pairs = View(blocks.address, DType.UINT16, (*blocks.strides[:-1], 2))
    return unary_task(pairs, replace(source, dtype=DType.UINT8), factor, extent, ActConfig(), config)


def _factors(node: Node, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - 2) + tuple(node.attrs["factors"])
