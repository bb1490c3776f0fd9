"""What all convolution nests share: facts of the node, one tile's addresses, the loops over the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.columns import ColumnFit, columns_divide, whole_fit
from torq_byoc.kernels.conv_block import BLOCK, block_channels
from torq_byoc.kernels.conv_packing import Blocks, kernel_extents
from torq_byoc.kernels.dsl import LoopSpec
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region
from torq_byoc.kernels.planes import PlaneWalk, WindowGeometry
from torq_byoc.kernels.portion import Portion
from torq_byoc.kernels.remembered import remembered
from torq_byoc.kernels.rescaling import pair_bytes
from torq_byoc.kernels.windows import Axis, window_axes
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, Role, Tag


class ConvShape(msgspec.Struct, frozen=True, gc=False):
    """Facts of a convolution node that do not depend on the tile.

    ``block`` output channels are computed together.  ``interleaved``: neighbouring output channels belong to
    neighbouring groups, those of one group lie ``groups`` apart.
    """

    geometry: WindowGeometry
    data_type: DType
    weight_type: DType
    in_channels: int
    out_channels: int
    groups: int
    pad_value: int
    block: int = BLOCK
    interleaved: bool = False

    @property
    def depthwise(self) -> bool:
        """One output channel for every input channel: the nest of ``depthwise.py``."""
        return self.groups == self.in_channels == self.out_channels and self.groups > 1

    @property
    def packing_groups(self) -> int:
        """Groups that are padded to whole blocks of output channels on their own."""
        return 1 if self.depthwise else self.groups

    @property
    def group_out(self) -> int:
        """Output channels of a packing group."""
        return self.out_channels // self.packing_groups

    @property
    def group_in(self) -> int:
        """Input channels that an output channel reads."""
        return self.in_channels // self.groups

    @property
    def granule_channels(self) -> int:
        """Output channels whose packed constants travel together: a block, or a whole group when groups are
        not whole blocks; of interleaved groups a block of each."""
        if self.interleaved:
            return self.block * self.groups
        return self.block if self.packing_groups == 1 or self.group_out % self.block == 0 else self.group_out

    @property
    def channel_steps(self) -> tuple[int, int]:
        """Output channels from one group to the next, and from one channel of a group to the next."""
        return (1, self.groups) if self.interleaved else (self.group_out, 1)

    @property
    def blocks(self) -> Blocks:
        """How the output channels are packed."""
        return Blocks(self.packing_groups, self.block, self.interleaved)

    def packed_steps(self, width: int) -> tuple[int, int]:
        """Packed output channels from one group to the next, and from one block of a group to the next."""
        return (width, self.block * self.groups) if self.interleaved else (self.group_out, self.block)

    @property
    def reduction(self) -> int:
        """Products that one output sums up, zero taps included."""
        phases_y, phases_x, kernel_h, kernel_w = kernel_extents(self.geometry)
        return self.group_in * phases_y * phases_x * kernel_h * kernel_w


@remembered
def conv_shape(graph: OpGraph, node: Node, config: NpuConfig) -> ConvShape:
    """The facts of a conv2d node.

    Raises:
        UnsupportedOpError: its left or right border cannot be expressed (``Conv2d.unsupported`` says so first).
    """
    data, weight = (graph.tensors[name] for name in node.inputs[:2])
    geometry = conv_geometry(graph, node)
    if geometry is None:
        raise UnsupportedOpError(
            "a convolution's border cannot be expressed by the NPU",
            where=node.origin or node.name,
            why="the columns' padding exceeds what the frame of the input holds",
            remedy="insert a separate pad node",
        )
    shape = ConvShape(
        geometry=geometry,
        data_type=data.dtype,
        weight_type=weight.dtype,
        in_channels=data.shape[1],
        out_channels=weight.shape[0],
        groups=int(node.attrs.get("groups", 1)),
        pad_value=node.attrs.get("pad_value", 0),
        interleaved=is_interleaved(graph, node),
    )
    if shape.depthwise:
        return shape
    alone = shape.groups == 1
    facts = (geometry.whole_lanes(), geometry.rows.out, shape.reduction, shape.group_out, data.dtype, weight.dtype)
    return replace(shape, block=block_channels(*facts, config, config.slices if alone else 1))


def is_interleaved(graph: OpGraph, node: Node) -> bool:
    """Whether neighbouring output channels belong to neighbouring groups, and groups have several of them."""
    groups = int(node.attrs.get("groups", 1))
    return bool(node.attrs.get("interleaved", False)) and 1 < groups < graph.tensors[node.output].shape[1]


@remembered
def conv_axes(graph: OpGraph, node: Node) -> tuple[Axis, Axis]:
    """Row and column axis of a conv2d node; the columns folded where that saves loads.

    A depthwise kernel loads every tap of a stride-2 row on its own, four channels in turn; over the two phases of
    the columns, three neighbouring taps share a load.
    """
    weight = graph.tensors[node.inputs[1]].shape
    rows, columns = window_axes(graph, node, weight[2:4])
    channels = graph.tensors[node.inputs[0]].shape[1]
    if int(node.attrs.get("groups", 1)) != channels or weight[0] != channels or columns.stride != 2:
        return rows, columns
    folded = replace(columns, fold=True)
    if columns.dilation > 1 or columns.kernel < 3 or not folded.is_walkable:
        return rows, columns
    fit = whole_fit(folded.folded(), zero_taps=True)
    return (rows, folded) if fit and fit.lead == fit.trail == 0 else (rows, columns)


def conv_geometry(graph: OpGraph, node: Node) -> WindowGeometry | None:
    """Axes, folding and zero taps of a conv2d node; None when its columns cannot be expressed."""
    rows, columns = conv_axes(graph, node)
    if not (rows.is_walkable and columns.is_walkable):
        return None
    fit = whole_fit(columns.folded(), zero_taps=True)
    return WindowGeometry(rows, columns, fit.lead, fit.trail) if fit else None


def carried_box(shape: ConvShape, config: NpuConfig) -> tuple[int, ...] | None:
    """The largest output box of one image whose accumulators fit PRAM; None when not even one row of it does.

    The lanes run over the frame: over as many rows as a vector holds, or over the part of a row that it holds where
    columns can be cut.  Zero taps and the border may put positions before the first output of a row.
    """
    columns = shape.geometry.plane_columns
    channels = min(shape.block, shape.out_channels)
    lanes = config.vector_width(shape.data_type, shape.weight_type, channels)
    pitch = math.ceil(shape.geometry.columns.size / shape.geometry.columns.stride)
    lead = columns.dilation * (columns.kernel + shape.geometry.lead + shape.geometry.trail) // columns.stride
    rows = 1 + (lanes - min(pitch, lead + columns.out)) // pitch
    if rows >= 1:
        return 1, channels, min(rows, shape.geometry.rows.out), columns.out
    if lanes <= lead or not columns_divide(columns, shape.geometry.lead, shape.geometry.trail):
        return None
    return 1, channels, 1, lanes - lead


class PackedBlock(msgspec.Struct, frozen=True, gc=False):
    """Distances in the packed weights of a block of output channels, ``width`` of which lie side by side."""

    shape: ConvShape
    width: int
    fit: ColumnFit

    @property
    def output_channel(self) -> int:
        """Bytes of the weights of one output channel."""
        return self.shape.reduction * self.shape.weight_type.size

    @property
    def input_channel(self) -> int:
        """Bytes between neighbouring input channels of a group."""
        return self.width * self.output_channel // self.shape.group_in

    @property
    def unused_lead(self) -> int:
        """Bytes of leading zero taps that a tile does without."""
        return (self.shape.geometry.lead - self.fit.lead) * self.width * self.shape.weight_type.size

    def tap_strides(self) -> dict[str, int]:
        """Bytes by which block member, phases and kernel loops move the weight operand."""
        _, phases_x, kernel_h, kernel_w = kernel_extents(self.shape.geometry)
        member = self.shape.weight_type.size
        column = self.width * member
        row = kernel_w * column
        phase_x = kernel_h * row
        return {"member": member, "phase_y": phases_x * phase_x, "phase_x": phase_x, "i": row, "j": column}


class ConvTile(msgspec.Struct, frozen=True, gc=False):
    """One tile of a convolution: its region, where everything lies, and how the plane is walked."""

    shape: ConvShape
    region: Region
    output: Placement
    source: Placement
    weights: ConstantPlacement
    pairs: ConstantPlacement
    walk: PlaneWalk
    act: ActConfig
    portion: Portion | None

    @classmethod
    def of(
        cls,
        shape: ConvShape,
        region: Region,
        output: Placement,
        source: Placement,
        constants: Sequence[ConstantPlacement],
        act: ActConfig,
        portion: Portion | None = None,
    ) -> ConvTile:
        """The tile of a ``Kernel.tasks`` call, or of one for a portion of the input channels."""
        walk = shape.geometry.walk(region, output, source, shape.pad_value)
        return cls(shape, region, output, source, constants[0], constants[1], walk, act, portion)

    @property
    def channels(self) -> tuple[int, int]:
        """First input channel of a group, and the number of channels, that are folded."""
        if self.portion is None:
            return 0, self.shape.group_in
        return self.portion.box.start[0], self.portion.box.extent[0]

    @property
    def pair_bytes(self) -> int:
        """Bytes of a bias/scale entry."""
        return pair_bytes(self.shape.data_type.is_float)

    def packed_block(self, channels: int) -> PackedBlock:
        """How the weights of a block of so many output channels lie."""
        return PackedBlock(self.shape, self.shape.blocks.width(channels), self.walk.fit)

    def weight_address(self, channel: int) -> int:
        """LRAM address of the packed weights of an output channel that starts a block."""
        return self._address(self.weights, channel, self.packed_block(1).output_channel)

    def pair_address(self, channel: int) -> int:
        """LRAM address of the bias/scale entry of an output channel that starts a block."""
        return self._address(self.pairs, channel, self.pair_bytes)

    def _address(self, constant: ConstantPlacement, channel: int, channel_bytes: int) -> int:
        granule, inside = divmod(channel, self.shape.granule_channels)
        return constant.granule(granule) + inside * channel_bytes

    def data_address(self, channel: int) -> int:
        """LRAM address of an input channel at the plane's origin."""
        return self.walk.data + (channel - self.source.region.start[1]) * self.source.strides[1]

    def result_address(self, channel: int) -> int:
        """LRAM address of the region's first pixel of an output channel."""
        return self.walk.result + (channel - self.region.start[1]) * self.output.strides[1]

    def batch_loop(self) -> LoopSpec:
        """The loop over images."""
        return LoopSpec("n", self.region.extent[0])

    def lane_loop(self) -> LoopSpec:
        """The loop over the frame's positions."""
        return LoopSpec("pixel", self.walk.lanes, Role.LANE, Tag.FLAT)

    def kernel_loops(self) -> list[LoopSpec]:
        """Reduce loops over folded phases, kernel rows and kernel columns."""
        phases_y, phases_x, kernel_h, _ = kernel_extents(self.shape.geometry)
        return [
            LoopSpec("phase_y", phases_y, Role.REDUCE),
            LoopSpec("phase_x", phases_x, Role.REDUCE),
            LoopSpec("i", kernel_h, Role.REDUCE, Tag.KERNEL_ROW),
            LoopSpec("j", self._kernel_columns(), Role.REDUCE, Tag.KERNEL_COLUMN),
        ]

    def _kernel_columns(self) -> int:
        fit = self.walk.fit
        return self.shape.geometry.plane_columns.kernel + fit.lead + fit.trail

    def phase_strides(self) -> dict[str, int]:
        """Bytes by which the folded phases move the data operand."""
        return {"phase_y": self.walk.fold[0], "phase_x": self.walk.fold[1]}
