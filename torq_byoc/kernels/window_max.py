"""Largest element of a sliding window along one axis, whatever the layout: half of a separable max pool.

The windowed axis gives the rows of the plane walk, whose border may be anything, and the axes inside it its columns:
[outer ..., axis, inner ...] is walked as outer planes of [axis, product of inner].  Lanes are contiguous in
memory for channel-last data too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Kernel, PackedConstant, Placement, Region, register
from torq_byoc.kernels.rescaling import act_config, is_identity, is_uniform, pair_type, pairs, rescaled
from torq_byoc.kernels.windows import Axis
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, OutputWindow, Plane, Role, SliceTask, Tag


@register
class WindowMax(Kernel):
    """``window_max``: stride 1, a border of any width that reads as ``pad_value``."""

    op = "window_max"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Kernel.reference``."""
        at, window, info = int(node.attrs["axis"]), _window(graph, node), graph.tensors[node.output]
        source = np.moveaxis(inputs[0], at, 0)
        after = max(window.last_read(0, window.out) + 1 - window.size, 0)
        border = [(window.pad, after)] + [(0, 0)] * (source.ndim - 1)
        padded = np.pad(source, border, constant_values=np.asarray(node.attrs["pad_value"], source.dtype))
        taps = [padded[tap * window.dilation :][: window.out] for tap in range(window.kernel)]
        largest = taps[0].copy()
        for tap in taps[1:]:
            np.maximum(largest, tap, out=largest)
        data = graph.tensors[node.inputs[0]].dtype
        wide = np.moveaxis(largest, 0, at).astype(np.float64 if data.is_float else np.int64)
        return rescaled(wide, node.rescale, info.dtype, data)

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """The data."""
        del graph, node
        return (0,)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """One rescale for all elements, every window on the tensor, not more taps than a reduction may have."""
        window = _window(graph, node)
        if not is_uniform(node.rescale):
            return "its rescale differs from element to element"
        if not window.is_walkable:
            return "a window lies wholly in the border"
        if window.kernel > config.limits.max_reduction:
            return f"{window.kernel} elements a window, the limit is {config.limits.max_reduction}"
        return None

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """One bias/scale entry, unless ACT does without."""
        del config
        rescale = node.rescale
        if rescale is None or is_identity(rescale):
            return ()
        entry = pairs(rescale, rescale.bias.size, graph.tensors[node.inputs[0]].dtype.is_float)[:1]
        return (PackedConstant("pairs", entry),)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The same box, along the axis what its windows reach."""
        del position
        at = int(node.attrs["axis"])
        first, count = _window(graph, node).input_span(output.start[at], output.extent[at])
        start, extent = list(output.start), list(output.extent)
        start[at], extent[at] = first, count
        return Region(tuple(start), tuple(extent))

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Anywhere along every axis."""
        del config
        return (1,) * len(graph.tensors[node.output].shape)

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
        """See ``Kernel.tasks``: one plane walk."""
        most = config.limits.max_s_count
        return [build(_nest(graph, node, region, output, inputs[0], constants, most), config)]


def _window(graph: OpGraph, node: Node) -> Axis:
    """The windowed axis."""
    at = int(node.attrs["axis"])
    return Axis(
        size=graph.tensors[node.inputs[0]].shape[at],
        out=graph.tensors[node.output].shape[at],
        kernel=int(node.attrs["kernel"]),
        dilation=int(node.attrs["dilation"]),
        pad=int(node.attrs["before"]),
    )


def _nest(
    graph: OpGraph,
    node: Node,
    region: Region,
    output: Placement,
    source: Placement,
    constants: Sequence[ConstantPlacement],
    most: int,
) -> LoopNest:
    at, window, size = int(node.attrs["axis"]), _window(graph, node), source.dtype.size
    inner = _contiguous_from(at + 1, region, output, source, most)
    columns = math.prod(region.extent[inner:])
    pitch = source.strides[at] // size
    border = window.pad + source.region.start[at] - region.start[at]
    skip = max(0, -border)
    first = [*region.start]
    first[at] = source.region.start[at] + skip
    others = [axis for axis in range(inner) if axis != at]
    loops = [
        *(LoopSpec(f"axis{axis}", region.extent[axis]) for axis in others),
        LoopSpec("element", (region.extent[at] - 1) * pitch + columns, Role.LANE, Tag.FLAT),
        LoopSpec("tap", window.kernel, Role.REDUCE, Tag.KERNEL_ROW),
    ]
    is_float = source.dtype.is_float
    return LoopNest(
        loops=tuple(loops),
        data=Operand(source.offset_of(first), source.dtype, {f"axis{axis}": source.strides[axis] for axis in others}),
        bias=Operand(constants[0].granule(0), pair_type(is_float)) if constants else None,
        result=Operand(
            output.offset_of(region.start), output.dtype, {f"axis{axis}": output.strides[axis] for axis in others}
        ),
        alu=AluConfig(Op0.DBYP, Op1.MAX),
        act=act_config(node.rescale, source.dtype),
        plane=Plane(
            height=source.region.extent[at] - skip,
            width=columns,
            frame_width=pitch,
            row_stride=source.strides[at],
            dilation_y=window.dilation,
            pad_top=max(0, border),
            pad_value=node.attrs["pad_value"],
        ),
        window=OutputWindow(
            frame_width=pitch,
            first_column=0,
            columns=columns,
            row_stride=output.strides[at],
            column_stride=output.dtype.size,
        ),
    )


def _contiguous_from(first: int, region: Region, output: Placement, source: Placement, most: int) -> int:
    """The outermost axis, not before ``first``, from which the region is one run of at most so many elements."""
    axis = len(region.extent)
    while axis > first and math.prod(region.extent[axis - 1 :]) <= most:
        axis -= 1
        if not region.extent[axis] == source.region.extent[axis] == output.region.extent[axis]:
            break
    return axis
