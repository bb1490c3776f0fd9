"""Convolution for the float evaluator; the one of ``onnx.reference`` copies windows element by element in Python.

A convolution of one tap is a matrix product of the channels; one with a channel a group is a sum of scaled slices;
every other is a matrix product with the windows laid out as columns.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as ReferenceConv


class Conv(OpRun):
    """Any rank and grouping, explicit pads; automatic pads are left to the package."""

    op_domain = ""

    def _run(  # noqa: ANN202 - the evaluator's protocol
        self,
        x,  # noqa: ANN001
        w,  # noqa: ANN001
        bias=None,  # noqa: ANN001
        auto_pad=None,  # noqa: ANN001
        dilations=None,  # noqa: ANN001
        group=1,  # noqa: ANN001
        kernel_shape=None,  # noqa: ANN001
        pads=None,  # noqa: ANN001
        strides=None,  # noqa: ANN001
    ):
        if auto_pad not in (None, "NOTSET", b"NOTSET"):
            return ReferenceConv._run(self, x, w, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
        rank = x.ndim - 2
        pads = pads or [0] * (2 * rank)
        padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]) if any(pads) else x
        y = convolve(padded, w, strides or [1] * rank, dilations or [1] * rank, group)
        return (y if bias is None else y + bias.reshape(-1, *[1] * rank),)


def convolve(x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilations: Sequence[int], group: int) -> np.ndarray:
    """Convolution without pads or bias.

    Args:
        x: batch x channels x extents.
        w: output channels x channels of a group x kernel.
        strides: one a spatial axis.
        dilations: one a spatial axis.
        group: number of groups.
    """
    counts = [
        (extent - dilation * (kernel - 1) - 1) // stride + 1
        for extent, kernel, stride, dilation in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    ]
    slices = [x[window] for window in _taps(w.shape[2:], counts, strides, dilations)]
    if w.shape[1] == 1:
        return _channel_by_channel(slices, w)
    batch, outputs = len(x), len(w)
    shape = (batch, group, w.shape[1], len(slices), prod(counts))
    columns = np.empty(shape, x.dtype)
    for tap, values in enumerate(slices):
        columns[:, :, :, tap] = values.reshape(batch, group, w.shape[1], -1)
    matrices = w.reshape(group, outputs // group, -1)
    return (matrices @ columns.reshape(batch, group, -1, shape[-1])).reshape(batch, outputs, *counts)


def _channel_by_channel(slices: Sequence[np.ndarray], w: np.ndarray) -> np.ndarray:
    """Convolution with one input channel a group, given the elements under every tap."""
    multiple = len(w) // slices[0].shape[1]
    factors = w.reshape(len(w), -1, *[1] * (w.ndim - 2))
    spread = slices if multiple == 1 else (np.repeat(values, multiple, axis=1) for values in slices)
    products = (values * factors[:, tap] for tap, values in enumerate(spread))
    return functools.reduce(np.add, products)


def _taps(
    kernel: Sequence[int], counts: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[slice, ...]]:
    """Where the elements under each tap lie, the last axis of the kernel fastest."""
    for taps in itertools.product(*map(range, kernel)):
        windows = (
            slice(tap * dilation, tap * dilation + (count - 1) * stride + 1, stride)
            for tap, dilation, count, stride in zip(taps, dilations, counts, strides, strict=True)
        )
        yield (slice(None), slice(None), *windows)
