"""Convolution: lanes are pixels of a plane, the ALU groups are a block of output channels (an outer product).

``conv2d`` covers dense, grouped and depthwise convolutions; depthwise ones take the nest of ``depthwise.py``, and
those with attribute ``lanes`` "filters" the nests of ``conv_filter_lanes.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from torq_byoc.kernels.columns import columns_divide
from torq_byoc.kernels.conv_filter_lanes import LANES, PIXELS, filter_lanes
from torq_byoc.kernels.conv_packing import granules, pack_pairs, pack_weights
from torq_byoc.kernels.conv_reference import convolve
from torq_byoc.kernels.conv_tile import ConvTile, carried_box, conv_axes, conv_geometry, conv_shape, is_interleaved
from torq_byoc.kernels.depthwise import depthwise_nests
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import (
    ConstantPlacement,
    Layout,
    PackedConstant,
    Placement,
    Region,
    register,
)
from torq_byoc.kernels.portion import CarryingKernel, Portion, alu_config
from torq_byoc.kernels.rescaling import act_config, pair_bytes, pair_type
from torq_byoc.kernels.windows import explicit_pads, window_axes
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import Op0, Op1, Role, SliceTask, Tag


@register
class Conv2d(CarryingKernel):
    """Two-dimensional convolution, dense, grouped or depthwise, with a constant kernel."""

    op = "conv2d"
    reads_whole_rows = True
    writes_phases = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Kernel.reference``; exact for integers, fp32 accumulation for bf16."""
        return convolve(graph, node, inputs[0], inputs[1])

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """The image; weights and biases are packed."""
        del graph, node
        return (0,)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Why the machine cannot run this convolution, or None when it can.

        A border that cannot be expressed is reported too: adding ``explicit_pads`` by a separate pad node, and
        giving the convolution pads of 0, makes it possible.
        """
        if node.inputs[1] not in graph.constants:
            return "the weights are not constant"
        lanes = filter_lanes(graph, node, config)
        if lanes is None and _asks_for_filter_lanes(node):
            return "lanes along the filters take one group, no border and operands of one type"
        if lanes is None and conv_geometry(graph, node) is None:
            return "the border cannot be expressed: pad the input by a separate node"
        reduction = lanes.products if lanes else conv_shape(graph, node, config).reduction
        if reduction > config.limits.max_reduction:
            return f"{reduction} products per output, the limit is {config.limits.max_reduction}"
        return None

    def cost_attributes(self, graph: OpGraph, node: Node) -> Mapping[str, Any]:
        """All but the value of the border."""
        del graph
        return {name: value for name, value in node.attrs.items() if name != "pad_value"}

    def explicit_pads(self, graph: OpGraph, node: Node) -> tuple[int, int, int, int]:
        """Elements (top, left, bottom, right) that a pad node must add so that pads of 0 give the same output."""
        return explicit_pads(*window_axes(graph, node, graph.tensors[node.inputs[1]].shape[2:4]))

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """Weights and bias/scale pairs, a granule for every block of output channels (or every group)."""
        lanes = filter_lanes(graph, node, config)
        if lanes:
            return lanes.constants(graph.constants[node.inputs[1]], node)
        shape = conv_shape(graph, node, config)
        weights = pack_weights(graph.constants[node.inputs[1]], shape.geometry, shape.blocks)
        pairs = pack_pairs(node.rescale, shape.out_channels, shape.blocks, shape.data_type.is_float)
        step, channel = shape.granule_channels, shape.reduction * shape.weight_type.size
        entry = pair_bytes(shape.data_type.is_float)
        pieces = shape.group_in if step == shape.block else 1
        return (
            PackedConstant("weights", granules(weights, step * channel), axis=1, step=step, pieces=pieces),
            PackedConstant("pairs", granules(pairs, step * entry), axis=1, step=step),
        )

    def input_layout(self, graph: OpGraph, node: Node, position: int) -> Layout:
        """Stride phases, of an axis with a single tap the first one alone; dense where lanes are filters."""
        del position
        if _asks_for_filter_lanes(node):
            return Layout()
        rows, columns = conv_axes(graph, node)
        alone = [axis.kernel == 1 and axis.stride > 1 and not axis.is_folded for axis in (rows, columns)]
        return Layout((rows.stride, columns.stride), (alone[0], alone[1]))

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """Rows and columns under the kernel; the input channels of the groups touched."""
        del position
        rows, columns = conv_axes(graph, node)
        row, height = rows.input_span(output.start[2], output.extent[2])
        column, width = columns.input_span(output.start[3], output.extent[3])
        out_channels, group_in = graph.tensors[node.inputs[1]].shape[:2]
        group_out = out_channels // int(node.attrs.get("groups", 1))
        first = output.start[1] // group_out
        last = (output.start[1] + output.extent[1] - 1) // group_out
        if is_interleaved(graph, node):
            first, last = 0, out_channels // group_out - 1
        channels = (last + 1 - first) * group_in
        return Region((output.start[0], first * group_in, row, column), (output.extent[0], channels, height, width))

    def reduction(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Input channels; none when there are groups, lanes are filters, or no row of pixels fits PRAM."""
        if _asks_for_filter_lanes(node):
            return ()
        shape = conv_shape(graph, node, config)
        return (shape.in_channels,) if shape.groups == 1 and self.carried_boxes(graph, node, config) else ()

    def carried_boxes(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[tuple[int, ...], ...]:
        """A block of output channels by as many pixels as a vector has lanes."""
        box = carried_box(conv_shape(graph, node, config), config)
        return (box,) if box else ()

    def portion_region(self, graph: OpGraph, node: Node, position: int, output: Region, portion: Region) -> Region:
        """``input_region`` with a range of input channels."""
        whole = self.input_region(graph, node, position, output)
        start, extent = (*whole.start[:1], *portion.start), (*whole.extent[:1], *portion.extent)
        return Region((*start, *whole.start[2:]), (*extent, *whole.extent[2:]))

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Images and rows anywhere, channels at granules, columns where the border allows."""
        lanes = filter_lanes(graph, node, config)
        if lanes:
            return 1, lanes.vector, 1, min(PIXELS, lanes.columns.out)
        shape = conv_shape(graph, node, config)
        geometry = shape.geometry
        divisible = columns_divide(geometry.plane_columns, geometry.lead, geometry.trail)
        return 1, shape.granule_channels, 1, 1 if divisible else 0

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
        """See ``Kernel.tasks``: one task, plus one for a remainder of output channels, per run of groups."""
        lanes = filter_lanes(graph, node, config)
        if lanes:
            return [build(nest, config) for nest in lanes.nests(node, region, output, inputs[0], constants)]
        shape = conv_shape(graph, node, config)
        act = act_config(node.rescale, shape.data_type, shape.weight_type)
        tile = ConvTile.of(shape, region, output, inputs[0], constants, act)
        nests = depthwise_nests(tile) if shape.depthwise else _dense_nests(tile)
        return [build(nest, config) for nest in nests]

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
        shape = conv_shape(graph, node, config)
        act = act_config(node.rescale, shape.data_type, shape.weight_type)
        tile = ConvTile.of(shape, region, output, inputs[0], constants, act, portion)
        return [build(nest, config) for nest in _dense_nests(tile)]

    def macs(self, graph: OpGraph, node: Node) -> int:
        """Output elements x (C / groups) x KH x KW; none for a factor a channel, which sums nothing up."""
        channels, group_in, kernel_h, kernel_w = graph.tensors[node.inputs[1]].shape
        products = group_in * kernel_h * kernel_w
        return int(np.prod(graph.tensors[node.output].shape)) * products if products > 1 or channels == 1 else 0


def _asks_for_filter_lanes(node: Node) -> bool:
    return node.attrs.get("lanes") == LANES


class _Run(msgspec.Struct, frozen=True, gc=False):
    """Output channels that one nest can cover: ``groups`` groups from ``group``, of each of them ``blocks``
    blocks of ``members`` channels from ``channel`` (counted inside the group)."""

    group: int
    groups: int
    channel: int
    blocks: int
    members: int


def _dense_nests(tile: ConvTile) -> Iterator[LoopNest]:
    """One nest for the whole blocks and one for the rest of each run of equally cut groups."""
    for group, groups, channel, count in _group_runs(tile):
        blocks, rest = divmod(count, tile.shape.block)
        if blocks:
            yield _nest(tile, _Run(group, groups, channel, blocks, tile.shape.block))
        if rest:
            yield _nest(tile, _Run(group, groups, channel + count - rest, 1, rest))


def _group_runs(tile: ConvTile) -> Iterator[tuple[int, int, int, int]]:
    """Cut the region's output channels at groups: (first group, groups, first channel inside, channels)."""
    size = tile.shape.group_out
    start, end = tile.region.start[1], tile.region.start[1] + tile.region.extent[1]
    if tile.shape.interleaved:
        groups = tile.shape.groups
        yield 0, groups, start // groups, (end - start) // groups
        return
    if start % size:
        head = min(end, start - start % size + size)
        yield start // size, 1, start % size, head - start
        start = head
    whole = (end - start) // size
    if whole:
        yield start // size, whole, 0, size
        start += whole * size
    if start < end:
        yield start // size, 1, 0, end - start


def _nest(tile: ConvTile, run: _Run) -> LoopNest:
    shape, packed = tile.shape, tile.packed_block(run.members)
    source, output = tile.source.strides, tile.output.strides
    group_step, member_step = shape.channel_steps
    group_packed, block_packed = shape.packed_steps(packed.width)
    channel = run.group * group_step + run.channel * member_step
    loops = [
        tile.batch_loop(),
        LoopSpec("group", run.groups, Role.PARALLEL, Tag.GROUP),
        LoopSpec("block", run.blocks, Role.PARALLEL, Tag.OUT_CHANNEL),
        tile.lane_loop(),
        LoopSpec("member", run.members, Role.GROUP, Tag.OUT_CHANNEL),
        LoopSpec("channel", tile.channels[1], Role.REDUCE, Tag.IN_CHANNEL),
        *tile.kernel_loops(),
    ]
    return LoopNest(
        loops=tuple(loops),
        data=Operand(
            tile.data_address(run.group * shape.group_in + tile.channels[0]),
            shape.data_type,
            {"n": source[0], "group": shape.group_in * source[1], "channel": source[1], **tile.phase_strides()},
        ),
        weight=Operand(
            tile.weight_address(channel) + packed.unused_lead,
            shape.weight_type,
            {
                **packed.tap_strides(),
                "channel": packed.input_channel,
                "group": group_packed * packed.output_channel,
                "block": block_packed * packed.output_channel,
            },
        ),
        bias=Operand(
            tile.pair_address(channel),
            pair_type(shape.data_type.is_float),
            {
                "group": group_packed * tile.pair_bytes,
                "block": block_packed * tile.pair_bytes,
                "member": tile.pair_bytes,
            },
        ),
        result=Operand(
            tile.result_address(channel),
            tile.output.dtype,
            {
                "n": output[0],
                "group": group_step * output[1],
                "block": shape.block * member_step * output[1],
                "member": member_step * output[1],
            },
        ),
        alu=alu_config(Op0.MUL, Op1.ACC, tile.portion),
        act=tile.act,
        plane=tile.walk.plane,
        window=tile.walk.window,
        weights=run.members,
    )
