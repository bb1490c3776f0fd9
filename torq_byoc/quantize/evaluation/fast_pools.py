"""Pooling operators for the float evaluator: the ones of ``onnx.reference`` visit every window in Python.

A pool of k taps is k strided slices of the padded input, folded together.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx.reference.op_run import OpRun


class MaxPool(OpRun):
    """Maximum over windows; explicit pads, any rank, no indices output."""

    op_domain = ""

    def _run(
        self, x, auto_pad=None, ceil_mode=0, dilations=None, kernel_shape=None, pads=None, storage_order=0, strides=None
    ):  # noqa: ANN001, ANN202 - the evaluator's protocol
        del auto_pad, storage_order
        window = _Window.of(x.shape, kernel_shape, strides, pads, dilations, ceil_mode)
        low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (window.fold(x, low, np.maximum),)


class AveragePool(OpRun):
    """Mean over windows; with ``count_include_pad`` the explicit border counts, what ceil_mode adds never does."""

    op_domain = ""

    def _run(
        self,
        x,
        auto_pad=None,
        ceil_mode=0,
        count_include_pad=0,
        dilations=None,
        kernel_shape=None,
        pads=None,
        strides=None,
    ):  # noqa: ANN001, ANN202 - the evaluator's protocol
        del auto_pad
        window = _Window.of(x.shape, kernel_shape, strides, pads, dilations, ceil_mode)
        counted = np.ones((1, 1, *x.shape[2:]), x.dtype)
        if count_include_pad:
            counted = np.pad(counted, window.border, constant_values=1)
            window_of_counts = window.without_border()
        else:
            window_of_counts = window
        return ((window.fold(x, 0, np.add) / window_of_counts.fold(counted, 0, np.add)).astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """Maximum of every plane; the evaluator's own reduces the wrong axes unless there are two."""

    op_domain = ""

    def _run(self, x):  # noqa: ANN001, ANN202 - the evaluator's protocol
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class _Window:
    """Geometry of a pool: taps, strides, the border that exists and the one that ceil_mode adds."""

    def __init__(
        self,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        border: list[tuple[int, int]],
        extents: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        self.kernel, self.strides, self.dilations, self.border = kernel, strides, dilations, border
        self.extents, self.counts = extents, counts

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int] | None,
        pads: Sequence[int] | None,
        dilations: Sequence[int] | None,
        ceil_mode: int,
    ) -> _Window:
        """The window of a node; ONNX: a window of ceil_mode must start inside the input or its left border."""
        rank = len(kernel)
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        pads = pads or [0] * (2 * rank)
        counts = []
        for axis in range(rank):
            free = shape[2 + axis] + pads[axis] + pads[rank + axis] - dilations[axis] * (kernel[axis] - 1) - 1
            count = (math.ceil if ceil_mode else math.floor)(free / strides[axis]) + 1
            if ceil_mode and (count - 1) * strides[axis] >= shape[2 + axis] + pads[axis]:
                count -= 1
            counts.append(count)
        border = [(0, 0), (0, 0), *((pads[axis], pads[rank + axis]) for axis in range(rank))]
        return cls(kernel, strides, dilations, border, shape[2:], counts)

    def without_border(self) -> _Window:
        """The same windows over an input that has the border built in."""
        extents = [extent + sum(pad) for extent, pad in zip(self.extents, self.border[2:], strict=True)]
        return _Window(self.kernel, self.strides, self.dilations, [(0, 0)] * len(self.border), extents, self.counts)

    def fold(
        self, x: np.ndarray, outside: float, combine: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Combine the taps of every window, elements outside the input being ``outside``."""
        reach = [
            (count - 1) * stride + dilation * (kernel - 1) + 1
            for count, stride, dilation, kernel in zip(
                self.counts, self.strides, self.dilations, self.kernel, strict=True
            )
        ]
        border = [*self.border[:2]]
        for (before, after), extent, needed in zip(self.border[2:], self.extents, reach, strict=True):
            border.append((before, max(after, needed - before - extent)))
        padded = np.pad(x, border, constant_values=outside)

        def at(taps: tuple[int, ...]) -> np.ndarray:
            slices = (
                slice(tap * dilation, tap * dilation + (count - 1) * stride + 1, stride)
                for tap, dilation, count, stride in zip(taps, self.dilations, self.counts, self.strides, strict=True)
            )
            return padded[(slice(None), slice(None), *slices)]

        return functools.reduce(combine, map(at, itertools.product(*map(range, self.kernel))))
