"""How many output channels share a data vector: 4 over 64 lanes, or 8 or 16 over fewer lanes.

All shapes multiply as much a cycle, but a short vector wastes less of a plane whose size is no multiple of the
long one: a 14 x 14 plane takes 4 vectors of 64 (77 % used), or 13 of 16 (94 % used) for four times the channels.
"""

from __future__ import annotations

import functools
import math

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.limits import accumulator_lanes

BLOCK = 4
"""Output channels of the common shape: the ALU groups of an outer product."""

_WIDER_BLOCKS = (8, 16)
_WORTHWHILE = 0.98
"""A wider block coarsens the cuts of the output channels; it must save at least this factor of the cycles."""
_CUT_SHARE = 6
"""Planes of several vectors that take more than this part of LRAM are computed in bands of a few rows, which fill a
short vector better than a long one: there a wider block need only take as many cycles."""
_CUT_BLOCKS = 4
"""Wider blocks that each slice must have then, so that channels can still be cut."""
_LRAM_SHARE = 12
"""The weights of a wider block take at most this part of LRAM: two slices with double buffers use a third."""


@functools.lru_cache(maxsize=4096)
def block_channels(
    lanes: int, rows: int, reduction: int, channels: int, data: DType, weight: DType, config: NpuConfig, slices: int
) -> int:
    """The block that takes the fewest cycles over a whole frame, what remains beside whole blocks included.

    Args:
        lanes: positions of the frame.
        rows: in which they lie.
        reduction: products that one output sums up.
        channels: output channels that are packed together.
        slices: slices between which those are divided, block by block.
        data, weight: operand types.
        config: the machine.

    Returns:
        4, 8 or 16; of two that are as fast the wider one where the frame will be cut into rows.
    """

    def cycles(members: int) -> int:
        act = config.act_width(data, weight)
        vector = min(config.vector_width(data, weight, members), math.ceil(lanes / act) * act)
        return math.ceil(lanes / vector) * max(reduction, members * math.ceil(vector / act))

    def total(block: int) -> int:
        whole, rest = divmod(channels, block)
        if slices == 1 or not whole:
            return whole * cycles(block) + (cycles(rest) if rest else 0)
        return math.ceil((whole + bool(rest)) / slices) * cycles(block)

    def fits(block: int) -> bool:
        used = config.vector_width(data, weight, block) * block * accumulator_lanes(data, weight)
        weights = block * reduction * weight.size
        return used <= config.accumulators and weights * _LRAM_SHARE <= config.lram_usable

    several = rows > 1 and lanes > config.vector_width(data, weight, BLOCK)
    cut = several and lanes * channels * data.size * _CUT_SHARE > config.lram_usable
    best = BLOCK
    for block in _WIDER_BLOCKS:
        equal_will_do = cut and channels >= _CUT_BLOCKS * slices * block
        if fits(block) and total(block) <= (1 if equal_will_do else _WORTHWHILE) * total(best):
            best = block
    return best
