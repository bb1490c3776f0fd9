"""Max and sum pools: the ALU folds the pixels under the kernel, without weights.

Nests that do the same are compared by their cycles: lanes along the pixels of a plane (``pool_nests.plane``), or
gathered lanes along channels or columns for windows that need no border (global pools, large strides).  A border that
lies at one side only is left out of the windows (``pool_columns``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torq_byoc.kernels.columns import columns_divide
from torq_byoc.kernels.conv_reference import pad_plane, tap_view
from torq_byoc.kernels.dsl import build
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Layout, PackedConstant, Placement, Region, register
from torq_byoc.kernels.pool_columns import ColumnGroup, column_groups
from torq_byoc.kernels.pool_nests import (
    PoolTile,
    borderless,
    carried,
    gathered,
    is_walkable,
    per_pixel,
    planar_geometry,
    whole_frame,
)
from torq_byoc.kernels.portion import CarryingKernel, Portion
from torq_byoc.kernels.rescaling import is_identity, is_uniform, pairs, rescaled
from torq_byoc.kernels.results import float_fold_vector
from torq_byoc.kernels.windows import Axis, explicit_pads, window_axes
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Op1, SliceTask
from torq_byoc.npu_model.timing import program_cycles


class _Pool(CarryingKernel):
    """What max and sum pools share."""

    fold: Op1
    reads_whole_rows = True
    writes_phases = True

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """The image."""
        del graph, node
        return (0,)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Why the machine cannot run this pool, or None when it can.

        A border that cannot be expressed is reported too: adding ``explicit_pads`` by a separate pad node, and
        giving the pool pads of 0, makes it possible.
        """
        rows, columns = _axes(graph, node)
        if not (self._walks_planes(graph, node) or (borderless(rows) and borderless(columns))):
            return "the border cannot be expressed: pad the input by a separate node"
        if rows.kernel * columns.kernel > config.limits.max_reduction:
            return f"{rows.kernel * columns.kernel} pixels a window, the limit is {config.limits.max_reduction}"
        return None

    def explicit_pads(self, graph: OpGraph, node: Node) -> tuple[int, int, int, int]:
        """Elements (top, left, bottom, right) that a pad node must add so that pads of 0 give the same output."""
        return explicit_pads(*_axes(graph, node))

    @abstractmethod
    def ignores(self, pad_value: float, data: DType) -> bool:
        """Whether a border of this value can be left out of every window."""

    def _groups(self, graph: OpGraph, node: Node) -> tuple[ColumnGroup, ...]:
        """Groups of columns to walk one after the other; none where one walk does, or none can."""
        rows, columns = _axes(graph, node)
        data = graph.tensors[node.inputs[0]].dtype
        if planar_geometry(rows, columns) or per_pixel(node.rescale) or not is_walkable(rows):
            return ()
        return column_groups(columns) if self.ignores(node.attrs.get("pad_value", 0), data) else ()

    def _walks_planes(self, graph: OpGraph, node: Node) -> bool:
        """Whether lanes can run along the pixels of a plane."""
        return planar_geometry(*_axes(graph, node)) is not None or bool(self._groups(graph, node))

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """Bias/scale entries unless ACT does without them: one for all, one a channel, or one a frame position."""
        del config
        rescale = node.rescale
        if rescale is None or is_identity(rescale):
            return ()
        is_float = graph.tensors[node.inputs[0]].dtype.is_float
        shape = graph.tensors[node.output].shape
        if is_uniform(rescale):
            one = replace(rescale, bias=rescale.bias[:1], scale=None if rescale.scale is None else rescale.scale[:1])
            return (PackedConstant("pairs", pairs(one, 1, is_float)),)
        if not per_pixel(rescale):
            return (PackedConstant("pairs", pairs(rescale, shape[1], is_float), axis=1),)
        entries = pairs(rescale, shape[2] * shape[3], is_float).reshape(*shape[2:], -1)
        first, pitch = whole_frame(*_axes(graph, node))
        frame = np.zeros((shape[2], max(pitch, first + shape[3]), entries.shape[2]), np.uint8)
        frame[:, first : first + shape[3]] = entries
        return (PackedConstant("pairs", frame.reshape(shape[2], -1), axis=2),)

    def input_layout(self, graph: OpGraph, node: Node, position: int) -> Layout:
        """Stride phases where lanes walk a plane, dense where they are gathered."""
        del position
        rows, columns = _axes(graph, node)
        return Layout((rows.stride, columns.stride)) if self._walks_planes(graph, node) else Layout()

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """Rows and columns under the kernel, of the same images and channels."""
        del position
        rows, columns = _axes(graph, node)
        row, height = rows.input_span(output.start[2], output.extent[2])
        column, width = columns.input_span(output.start[3], output.extent[3])
        return Region((*output.start[:2], row, column), (*output.extent[:2], height, width))

    def reduction(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Kernel rows and columns, where lanes can be gathered: from dense tiles, without a border."""
        rows, columns = _axes(graph, node)
        gathers = self.input_layout(graph, node, 0).phases == (1, 1) and borderless(rows) and borderless(columns)
        return (rows.kernel, columns.kernel) if gathers and self.carried_boxes(graph, node, config) else ()

    def carried_boxes(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[tuple[int, ...], ...]:
        """A vector along the channels, or along a row."""
        data = graph.tensors[node.inputs[0]].dtype
        narrow = 0 if self.fold is Op1.ACC else float_fold_vector(node.rescale, data, config)
        vector = narrow or config.vector_width(data, None, 1)
        width, divisible = graph.tensors[node.output].shape[3], self.tile_steps(graph, node, config)[3] > 0
        boxes = [(1, vector, 1, 1)] if not per_pixel(node.rescale) and (divisible or width == 1) else []
        return (*boxes, (1, 1, 1, min(vector, width))) if divisible or width <= vector else tuple(boxes)

    def portion_region(self, graph: OpGraph, node: Node, position: int, output: Region, portion: Region) -> Region:
        """Rows and columns under a part of the kernel."""
        del position
        start, extent = list(output.start[:2]), list(output.extent[:2])
        for index, axis in enumerate(_axes(graph, node)):
            taps, first, count = portion.extent[index], output.start[2 + index], output.extent[2 + index]
            start.append(first * axis.stride - axis.pad + portion.start[index] * axis.dilation)
            extent.append((count - 1) * axis.stride + (taps - 1) * axis.dilation + 1)
        return Region(tuple(start), tuple(extent))

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Images, channels and rows anywhere; columns where the border allows and entries are not per pixel."""
        del config
        geometry = planar_geometry(*_axes(graph, node))
        divisible = geometry is None or columns_divide(geometry.plane_columns, 0, 0)
        return 1, 1, 1, 1 if divisible and not per_pixel(node.rescale) else 0

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
        """See ``Kernel.tasks``: the cheapest of the nests that fit the tile."""
        rows, columns = _axes(graph, node)
        entries = constants[0] if constants else None
        tile = PoolTile(node, rows, columns, region, output, inputs[0], entries, self.fold, self._groups(graph, node))
        nests = [[build(nest, config) for nest in choice] for choice in (tile.planar(), *gathered(tile)) if choice]
        return min(nests, key=lambda tasks: program_cycles(tuple(tasks)))

    def portion_tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        portion: Portion,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """See ``CarryingKernel.portion_tasks``."""
        rows, columns = _axes(graph, node)
        entries = constants[0] if constants else None
        tile = PoolTile(node, rows, columns, region, output, inputs[0], entries, self.fold, portion=portion)
        return [build(nest, config) for nest in carried(tile)]


@register
class MaxPool(_Pool):
    """Largest pixel under the kernel."""

    op = "maxpool"
    fold = Op1.MAX

    def ignores(self, pad_value: float, data: DType) -> bool:
        """The lowest value never is the largest of several."""
        return pad_value <= (-math.inf if data.is_float else data.integer_range[0])

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Kernel.reference``."""
        rows, columns = _axes(graph, node)
        padded = pad_plane(inputs[0], rows, columns, node.attrs.get("pad_value", 0))
        largest = tap_view(padded, rows, columns, 0, 0).copy()
        for i, j in np.ndindex(rows.kernel, columns.kernel):
            np.maximum(largest, tap_view(padded, rows, columns, i, j), out=largest)
        return _rescaled(graph, node, largest)


@register
class SumPool(_Pool):
    """Sum of the pixels under the kernel; the rescale makes it an average."""

    op = "sumpool"
    fold = Op1.ACC

    def ignores(self, pad_value: float, data: DType) -> bool:
        """Zero adds nothing."""
        return pad_value == 0

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Kernel.reference``; exact for integers."""
        rows, columns = _axes(graph, node)
        padded = pad_plane(inputs[0], rows, columns, node.attrs.get("pad_value", 0))
        wide = np.float64 if graph.tensors[node.inputs[0]].dtype.is_float else np.int64
        total = np.zeros(graph.tensors[node.output].shape, wide)
        for i, j in np.ndindex(rows.kernel, columns.kernel):
            total += tap_view(padded, rows, columns, i, j)
        return _rescaled(graph, node, total)


def _axes(graph: OpGraph, node: Node) -> tuple[Axis, Axis]:
    return window_axes(graph, node, node.attrs["kernel"])


def _rescaled(graph: OpGraph, node: Node, folded: np.ndarray) -> np.ndarray:
    data = graph.tensors[node.inputs[0]].dtype
    wide = np.float64 if data.is_float else np.int64
    return rescaled(folded.astype(wide), node.rescale, graph.tensors[node.output].dtype, data)
