"""Bias/scale entries that are computed at run time: a tensor with one entry an element (or a row) of another.

Integer entries are int32[..., 2] = (bias, scale) pairs, float entries fp32[..., 1] biases; the leading axes
broadcast to the output.
"""

from __future__ import annotations

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.kernels.rescaling import pair_bytes, pair_type
from torq_byoc.kernels.views import View, broadcast_region, view
from torq_byoc.npu_model.dtypes import DType


def entries_problem(graph: OpGraph, node: Node, data: DType) -> str | None:
    """Why the second input cannot be the entries of a B operand, or None when it can."""
    info = graph.tensors[node.inputs[1]]
    wanted, width = pair_type(data.is_float), pair_bytes(data.is_float) // 4
    if info.dtype is not wanted or not info.shape or info.shape[-1] != width:
        return f"the second input is {info.dtype.value}{list(info.shape)}, not {wanted.value}[..., {width}]"
    return None


def entries_region(shape: tuple[int, ...], output: Region) -> Region:
    """The entries that an output box reads."""
    rows = broadcast_region(shape[:-1], output)
    return Region((*rows.start, 0), (*rows.extent, shape[-1]))


def entries_view(placement: Placement, shape: tuple[int, ...], output: Region) -> View:
    """The entries over the axes of an output box; axes along which they are repeated have stride 0."""
    base = view(placement, entries_region(shape, output).start)
    lead = (0,) * (len(output.start) - len(shape) + 1)
    inner = tuple(0 if size == 1 else s for size, s in zip(shape[:-1], base.strides[:-1], strict=True))
    return View(base.address, base.dtype, lead + inner)
