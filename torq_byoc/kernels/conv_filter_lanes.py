"""Convolution with lanes along the output channels: the other way round than a plane walk.

The data vector holds one weight of every filter, the ALU groups hold a run of neighbouring output pixels:

    result[filter, pixel] += filters[tap][filter] * image[pixel * stride + tap]

A stride costs nothing here: the image lies as it is, where a plane walk wants it split into stride phases (an
input of 64 phases takes 64 strided loads a tile).  Filters are packed as [granule of a vector of filters, input
channel, kernel row, kernel column, filter].  There is no border: whoever has one pads by a separate node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from torq_byoc.kernels.conv_block import BLOCK
from torq_byoc.kernels.conv_tile import conv_geometry, conv_shape
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region
from torq_byoc.kernels.phase_boxes import PhaseBox, phase_boxes
from torq_byoc.kernels.rescaling import act_config, pair_bytes, pair_type, pairs
from torq_byoc.kernels.windows import Axis, window_axes
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, Role, Tag

PIXELS = BLOCK
"""Output pixels that share a vector of filters: the ALU groups."""
LANES = "filters"
"""The value of a node's attribute ``lanes`` that asks for this form."""


def filter_lanes(graph: OpGraph, node: Node, config: NpuConfig) -> FilterLanes | None:
    """The facts of a node that asks for this form; None for one that walks a plane."""
    return FilterLanes.of(graph, node, config) if node.attrs.get("lanes") == LANES else None


def prefers_filter_lanes(graph: OpGraph, node: Node, config: NpuConfig) -> bool:
    """Whether a conv2d node with strides that the plane walk must fold runs at least as fast in this form."""
    facts = FilterLanes.of(graph, node, config)
    if facts is None or not (facts.rows.is_folded or facts.columns.is_folded):
        return False
    if facts.products > config.limits.max_reduction:
        return False
    return conv_geometry(graph, node) is None or facts.cycles(config) <= _planar_cycles(graph, node, config)


def _planar_cycles(graph: OpGraph, node: Node, config: NpuConfig) -> int:
    """Cycles of the same operator as one plane walk."""
    shape = conv_shape(graph, node, config)
    members = min(shape.block, shape.out_channels)
    vector = config.vector_width(shape.data_type, shape.weight_type, members)
    drain = members * math.ceil(vector / config.act_width(shape.data_type, shape.weight_type))
    vectors = math.ceil(shape.geometry.whole_lanes() / vector) * math.ceil(shape.out_channels / shape.block)
    return vectors * max(shape.reduction, drain)


@dataclass(frozen=True)
class FilterLanes:
    """Facts of such a convolution; ``vector`` filters make a granule of packed constants."""

    rows: Axis
    columns: Axis
    dtype: DType
    filters: int
    channels: int
    vector: int

    @classmethod
    def of(cls, graph: OpGraph, node: Node, config: NpuConfig) -> FilterLanes | None:
        """The facts, or None for what this form does not cover: groups, a border, operands of two types."""
        data, weight = (graph.tensors[name] for name in node.inputs[:2])
        rows, columns = window_axes(graph, node, weight.shape[2:4])
        inside = all(axis.pad <= 0 and axis.last_read(0, axis.out) < axis.size for axis in (rows, columns))
        if int(node.attrs.get("groups", 1)) != 1 or not inside or data.dtype is not weight.dtype:
            return None
        vector = config.vector_width(weight.dtype, data.dtype, PIXELS)
        return cls(rows, columns, data.dtype, weight.shape[0], weight.shape[1], vector)

    @property
    def products(self) -> int:
        """Products that one output sums up."""
        return self.channels * self.rows.kernel * self.columns.kernel

    def cycles(self, config: NpuConfig) -> int:
        """Cycles of the whole operator in one task.

        Pixels are loaded one group member after the other, each load as many neighbouring taps as the weight memory
        holds; results of a pixel are scattered over the planes of their channels.
        """
        taps = config.weight_bus // (PIXELS * self.dtype.size) if self.columns.dilation == 1 else 1
        loads = PIXELS * math.ceil(self.columns.kernel / taps)
        fold = self.channels * self.rows.kernel * max(self.columns.kernel, loads)
        drain = PIXELS * self.vector // config.act_width(self.dtype, self.dtype, per_item=True)
        scatter = PIXELS * self.vector // config.limits.scatter_addresses
        vectors = math.ceil(self.filters / self.vector) * self.rows.out * math.ceil(self.columns.out / PIXELS)
        return vectors * max(fold, drain, scatter)

    def constants(self, weight: np.ndarray, node: Node) -> tuple[PackedConstant, ...]:
        """Filters and bias/scale entries, a granule a vector; missing filters of the last one are zero."""
        granules = math.ceil(self.filters / self.vector)
        padded = np.zeros((granules * self.vector, self.products), weight.dtype)
        padded[: self.filters] = weight.reshape(self.filters, -1)
        taps = np.ascontiguousarray(padded.reshape(granules, self.vector, -1).swapaxes(1, 2))
        entry = pair_bytes(self.dtype.is_float)
        entries = np.zeros((granules * self.vector, entry), np.uint8)
        entries[: self.filters] = pairs(node.rescale, self.filters, self.dtype.is_float)
        return (
            PackedConstant("weights", taps.view(np.uint8).reshape(granules, -1), axis=1, step=self.vector),
            PackedConstant("pairs", entries.reshape(granules, -1), axis=1, step=self.vector),
        )

    def nests(
        self,
        node: Node,
        region: Region,
        output: Placement,
        source: Placement,
        constants: Sequence[ConstantPlacement],
    ) -> Iterator[LoopNest]:
        """The nests of one tile: whole vectors of filters by whole groups of pixels, and what remains of either."""
        for box in phase_boxes(output, region):
            for channel, vectors, lanes in _parts(region.start[1], region.extent[1], self.vector):
                for pixel, groups, members in _parts(0, box.count[1], PIXELS):
                    run = _Run(box, channel, vectors, lanes, pixel, groups, members)
                    yield self._nest(node, region, output, source, constants, run)

    def _nest(
        self,
        node: Node,
        region: Region,
        output: Placement,
        source: Placement,
        constants: Sequence[ConstantPlacement],
        run: _Run,
    ) -> LoopNest:
        size, image = self.dtype.size, source.strides
        weights, entries = constants[0], constants[1]
        pixel = run.box.step[1] * self.columns.stride * size
        tap, entry = self.vector * size, pair_bytes(self.dtype.is_float)
        granule = run.channel // self.vector
        channel_bytes = self.rows.kernel * self.columns.kernel * tap
        loops = (
            LoopSpec("n", region.extent[0]),
            LoopSpec("vector", run.vectors, Role.PARALLEL, Tag.OUT_CHANNEL),
            LoopSpec("row", run.box.count[0]),
            LoopSpec("group", run.groups),
            LoopSpec("filter", run.lanes, Role.LANE, Tag.OUT_CHANNEL),
            LoopSpec("pixel", run.members, Role.GROUP),
            LoopSpec("channel", self.channels, Role.REDUCE, Tag.IN_CHANNEL),
            LoopSpec("i", self.rows.kernel, Role.REDUCE),
            LoopSpec("j", self.columns.kernel, Role.REDUCE),
        )
        return LoopNest(
            loops=loops,
            data=Operand(
                weights.granule(granule),
                self.dtype,
                {
                    "vector": weights.granule_bytes,
                    "filter": size,
                    "channel": channel_bytes,
                    "i": self.columns.kernel * tap,
                    "j": tap,
                },
            ),
            weight=Operand(
                source.offset_of(self._origin(region, run)),
                self.dtype,
                {
                    "n": image[0],
                    "row": run.box.step[0] * self.rows.stride * image[2],
                    "group": PIXELS * pixel,
                    "pixel": pixel,
                    "channel": image[1],
                    "i": self.rows.dilation * image[2],
                    "j": self.columns.dilation * size,
                },
            ),
            bias=Operand(
                entries.granule(granule),
                pair_type(self.dtype.is_float),
                {"vector": entries.granule_bytes, "filter": entry},
            ),
            result=Operand(
                run.box.address + (run.channel - region.start[1]) * output.strides[1] + run.pixel * output.strides[3],
                output.dtype,
                {
                    "n": output.strides[0],
                    "vector": self.vector * output.strides[1],
                    "row": output.strides[2],
                    "group": PIXELS * output.strides[3],
                    "filter": output.strides[1],
                    "pixel": output.strides[3],
                },
            ),
            alu=AluConfig(Op0.MUL, Op1.ACC),
            act=act_config(node.rescale, self.dtype, self.dtype),
            weights=run.members,
        )

    def _origin(self, region: Region, run: _Run) -> tuple[int, int, int, int]:
        """Index of the first element that the first output reads."""
        column = run.box.first[1] + run.pixel * run.box.step[1]
        row = run.box.first[0] * self.rows.stride - self.rows.pad
        return region.start[0], 0, row, column * self.columns.stride - self.columns.pad


class _Run(msgspec.Struct, frozen=True, gc=False):
    """What one nest covers: ``vectors`` vectors of ``lanes`` filters from ``channel``, and along the columns of a
    box ``groups`` groups of ``members`` pixels from the box's ``pixel``-th."""

    box: PhaseBox
    channel: int
    vectors: int
    lanes: int
    pixel: int
    groups: int
    members: int


def _parts(start: int, extent: int, size: int) -> Iterator[tuple[int, int, int]]:
    """A range as whole parts and a rest: (first, number of parts, extent of each)."""
    whole, rest = divmod(extent, size)
    if whole:
        yield start, whole, size
    if rest:
        yield start + extent - rest, 1, rest
