"""Depthwise convolution: lanes are pixels of a plane, the ALU groups are four channels, each with its own data.

The four vectors of a step are loaded in turn, so a 3-tap row costs four loads for three steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from torq_byoc.kernels.conv_block import BLOCK
from torq_byoc.kernels.conv_tile import ConvTile
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand
from torq_byoc.kernels.rescaling import pair_type
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, Role, Tag


def depthwise_nests(tile: ConvTile) -> Iterator[LoopNest]:
    """The nests of one tile: whole blocks of four channels, then the remaining channels."""
    first, count = tile.region.start[1], tile.region.extent[1]
    blocks, rest = divmod(count, BLOCK)
    if blocks:
        yield _nest(tile, first, blocks, BLOCK)
    if rest:
        yield _nest(tile, first + blocks * BLOCK, 1, rest)


def _nest(tile: ConvTile, channel: int, blocks: int, members: int) -> LoopNest:
    packed = tile.packed_block(members)
    source, output, shape = tile.source.strides, tile.output.strides, tile.shape
    loops = [
        tile.batch_loop(),
        LoopSpec("block", blocks, Role.PARALLEL, Tag.OUT_CHANNEL),
        tile.lane_loop(),
        LoopSpec("member", members, Role.GROUP, Tag.GROUP),
        *tile.kernel_loops(),
    ]
    return LoopNest(
        loops=tuple(loops),
        data=Operand(
            tile.data_address(channel),
            shape.data_type,
            {"n": source[0], "block": BLOCK * source[1], "member": source[1], **tile.phase_strides()},
        ),
        weight=Operand(
            tile.weight_address(channel) + packed.unused_lead,
            shape.weight_type,
            {**packed.tap_strides(), "block": BLOCK * packed.output_channel},
        ),
        bias=Operand(
            tile.pair_address(channel),
            pair_type(shape.data_type.is_float),
            {"block": BLOCK * tile.pair_bytes, "member": tile.pair_bytes},
        ),
        result=Operand(
            tile.result_address(channel),
            tile.output.dtype,
            {"n": output[0], "block": BLOCK * output[1], "member": output[1]},
        ),
        alu=AluConfig(Op0.MUL, Op1.ACC),
        act=tile.act,
        plane=tile.walk.plane,
        window=tile.walk.window,
        weights=members,
    )
