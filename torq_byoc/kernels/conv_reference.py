"""Whole-tensor convolution in the machine's arithmetic: window gathering and a matrix product per group."""

from __future__ import annotations

import numpy as np

from torq_byoc.kernels.exact import exact_matmul
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.rescaling import rescaled
from torq_byoc.kernels.windows import Axis, window_axes
from torq_byoc.npu_model.dtypes import DType


def convolve(graph: OpGraph, node: Node, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The result of a conv2d node.

    Args:
        graph, node: the node and its graph, for shapes and types.
        data: [N, C, H, W].
        weight: [O, C / g, KH, KW].

    Returns:
        [N, O, OH, OW] in the output's type.
    """
    info = graph.tensors[node.output]
    rows, columns = window_axes(graph, node, weight.shape[2:4])
    groups = int(node.attrs.get("groups", 1))
    interleaved = bool(node.attrs.get("interleaved", False))
    weight = separated(weight, groups) if interleaved else weight
    padded = pad_plane(data, rows, columns, node.attrs.get("pad_value", 0))
    sums = np.stack([_image_sums(image, weight, rows, columns, groups) for image in padded])
    if interleaved:
        sums = separated(sums, sums.shape[1] // groups, axis=1)
    operands = DType.of(data.dtype), DType.of(weight.dtype)
    return rescaled(sums, node.rescale, info.dtype, *operands)


def separated(channels: np.ndarray, groups: int, axis: int = 0) -> np.ndarray:
    """Interleaved groups along an axis brought one after the other: channel i * groups + g to g * n + i.

    With the number of channels of a group in place of ``groups`` it is its own inverse.
    """
    shape = channels.shape
    split = channels.reshape(*shape[:axis], shape[axis] // groups, groups, *shape[axis + 1 :])
    return np.ascontiguousarray(split.swapaxes(axis, axis + 1)).reshape(shape)


def pad_plane(data: np.ndarray, rows: Axis, columns: Axis, value: float) -> np.ndarray:
    """Surround the last two axes with their border, exactly as far as the windows reach."""
    widths = [(0, 0)] * (data.ndim - 2)
    for axis, extent in zip((rows, columns), data.shape[-2:], strict=True):
        after = axis.last_read(0, axis.out) + 1 - extent
        widths.append((axis.pad, max(0, after)))
    return np.pad(data, widths, constant_values=np.asarray(value).astype(data.dtype))


def tap_view(padded: np.ndarray, rows: Axis, columns: Axis, row: int, column: int) -> np.ndarray:
    """What one kernel element sees of a padded tensor: a strided view [..., OH, OW]."""
    top, left = row * rows.dilation, column * columns.dilation
    bottom = top + (rows.out - 1) * rows.stride + 1
    right = left + (columns.out - 1) * columns.stride + 1
    return padded[..., top : bottom : rows.stride, left : right : columns.stride]


def _image_sums(image: np.ndarray, weight: np.ndarray, rows: Axis, columns: Axis, groups: int) -> np.ndarray:
    """Accumulators [O, OH, OW] of one padded image [C, H', W']."""
    channels, pixels = image.shape[0], rows.out * columns.out
    if groups == channels == weight.shape[0] and groups > 1:
        return _depthwise_sums(image, weight, rows, columns)
    taps = [
        tap_view(image, rows, columns, i, j).reshape(channels, 1, pixels)
        for i in range(rows.kernel)
        for j in range(columns.kernel)
    ]
    patches = np.concatenate(taps, axis=1).reshape(groups, -1, pixels)
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    return exact_matmul(kernels, patches).reshape(weight.shape[0], rows.out, columns.out)


def _depthwise_sums(image: np.ndarray, weight: np.ndarray, rows: Axis, columns: Axis) -> np.ndarray:
    """One product a tap and channel: a matrix product would spend its time on rows of length one."""
    wide = _sum_type(image, weight)
    sums: np.ndarray = np.zeros((image.shape[0], rows.out, columns.out), wide)
    for i in range(rows.kernel):
        for j in range(columns.kernel):
            view = tap_view(image, rows, columns, i, j)
            sums += view.astype(wide) * weight[:, 0, i, j].astype(wide)[:, None, None]
    return sums if wide is np.float64 else sums.astype(np.int64)


def _sum_type(image: np.ndarray, weight: np.ndarray) -> type:
    if not np.issubdtype(image.dtype, np.integer):
        return np.float64
    bits = 8 * (image.dtype.itemsize + weight.dtype.itemsize) + int(weight[0].size).bit_length()
    return np.int32 if bits <= 31 else np.int64
