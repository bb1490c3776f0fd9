"""Convolution weights and bias/scale pairs as the slice reads them.

Weights lie as [group, block of output channels, input channel, row phase, column phase, kernel row, kernel
column, channel of the block]: one weight load serves consecutive kernel columns of a block.  Row and column phases
exist only for folded strides.  Where groups interleave, the blocks of all groups stand together, [block, group, ...],
so that a range of output channels is a range of bytes.
"""

from __future__ import annotations

import msgspec
import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.planes import WindowGeometry
from torq_byoc.kernels.rescaling import pairs


def kernel_extents(geometry: WindowGeometry) -> tuple[int, int, int, int]:
    """Extents (row phases, column phases, kernel rows, kernel columns) of the packed kernel."""
    return (
        geometry.rows.unit,
        geometry.columns.unit,
        geometry.plane_rows.kernel,
        geometry.plane_columns.kernel + geometry.lead + geometry.trail,
    )


class Blocks(msgspec.Struct, frozen=True, gc=False):
    """How output channels are packed: ``groups`` groups in blocks of ``block`` channels.

    What a group leaves beside whole blocks is packed as one narrower block; where there is one group only, that one
    is as wide as the others, and zero channels fill it.  ``interleaved``: channel c belongs to group c % groups.
    """

    groups: int
    block: int
    interleaved: bool = False

    def width(self, channels: int) -> int:
        """Channels that lie side by side where a block has ``channels``."""
        return self.block if self.groups == 1 else channels

    def pack(self, channels: np.ndarray, *, side_by_side: bool) -> np.ndarray:
        """[O, m] to uint8[bytes].

        Args:
            channels: what belongs to each output channel.
            side_by_side: a block lies as [m, channels], not as [channels, m].
        """
        size = channels.shape[0] // self.groups
        grouped = channels.reshape(self.groups, size, -1)
        if self.interleaved:
            grouped = channels.reshape(size, self.groups, -1).swapaxes(0, 1)
        parts = [grouped[:, start : start + self.block] for start in range(0, size, self.block)]
        missing = self.width(parts[-1].shape[1]) - parts[-1].shape[1]
        parts[-1] = np.pad(parts[-1], ((0, 0), (0, missing), (0, 0)))
        bits = [self._bytes(part.swapaxes(1, 2) if side_by_side else part) for part in parts]
        if self.interleaved:
            return np.concatenate([part.reshape(-1) for part in bits])
        return np.concatenate(bits, axis=1).reshape(-1)

    @staticmethod
    def _bytes(part: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8)


def pack_weights(weight: np.ndarray, geometry: WindowGeometry, blocks: Blocks) -> np.ndarray:
    """Re-index, zero-extend and interleave convolution weights.

    Args:
        weight: [O, C / g, KH, KW].
        geometry: the window, which says where each tap goes and how many zero taps stand around.
        blocks: how output channels are packed.

    Returns:
        uint8[bytes], block after block.
    """
    phases_y, phases_x, kernel_h, kernel_w = kernel_extents(geometry)
    out_channels, in_channels = weight.shape[:2]
    taps = np.zeros((out_channels, in_channels, phases_y, phases_x, kernel_h, kernel_w), weight.dtype)
    for i, (phase_y, row) in enumerate(geometry.rows.taps()):
        for j, (phase_x, column) in enumerate(geometry.columns.taps()):
            taps[:, :, phase_y, phase_x, row, geometry.lead + column] = weight[:, :, i, j]
    return blocks.pack(taps.reshape(out_channels, -1), side_by_side=True)


def pack_pairs(rescale: Rescale | None, channels: int, blocks: Blocks, is_float: bool) -> np.ndarray:
    """Bias/scale pairs in the same blocks: uint8[bytes]."""
    return blocks.pack(pairs(rescale, channels, is_float), side_by_side=False)


def granules(packed: np.ndarray, size: int) -> np.ndarray:
    """Packed bytes as granules of ``size`` bytes; the last one is filled up with zeros."""
    count = -(-packed.size // size)
    return np.pad(packed, (0, count * size - packed.size)).reshape(count, size)
