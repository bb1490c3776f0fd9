"""Convolution weights and bias/scale pairs as the slice reads them.

Weights lie as [group, block of output channels, input channel, row phase, column phase, kernel row, kernel
column, channel of the block]: one weight load serves consecutive kernel columns of a block.  Row and column phases
exist only for folded strides; the last block of a group is padded with zero channels.
"""

from __future__ import annotations

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


def pack_weights(weight: np.ndarray, geometry: WindowGeometry, groups: int, block: int) -> np.ndarray:
    """Re-index, zero-extend and interleave convolution weights.

    Args:
        weight: [O, C / g, KH, KW].
        geometry: the window, which says where each tap goes and how many zero taps stand around.
        groups: groups of output channels that are padded to whole blocks separately.
        block: output channels of a block.

    Returns:
        uint8[groups, blocks, bytes of a block].
    """
    phases_y, phases_x, kernel_h, kernel_w = kernel_extents(geometry)
    out_channels, in_channels = weight.shape[:2]
    taps = np.zeros((out_channels, in_channels, phases_y, phases_x, kernel_h, kernel_w), weight.dtype)
    for i, (phase_y, row) in enumerate(geometry.rows.taps()):
        for j, (phase_x, column) in enumerate(geometry.columns.taps()):
            taps[:, :, phase_y, phase_x, row, geometry.lead + column] = weight[:, :, i, j]
    blocks = _blocked(taps.reshape(groups, out_channels // groups, -1), block)
    interleaved = np.ascontiguousarray(np.swapaxes(blocks, 2, 3))
    return interleaved.view(np.uint8).reshape(groups, blocks.shape[1], -1)


def pack_pairs(rescale: Rescale | None, channels: int, groups: int, block: int, is_float: bool) -> np.ndarray:
    """Bias/scale pairs in the same blocks: uint8[groups, blocks, bytes of a block]."""
    entries = pairs(rescale, channels, is_float)
    blocks = _blocked(entries.reshape(groups, channels // groups, -1), block)
    return blocks.reshape(groups, blocks.shape[1], -1)


def _blocked(channels: np.ndarray, block: int) -> np.ndarray:
    """[groups, n, m] to [groups, ceil(n / block), block, m], missing channels zero."""
    groups, count, inner = channels.shape
    blocks = -(-count // block)
    padded = np.zeros((groups, blocks * block, inner), channels.dtype)
    padded[:, :count] = channels
    return padded.reshape(groups, blocks, block, inner)
