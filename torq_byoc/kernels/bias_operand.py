"""The B operand of element-wise kernels: a node's bias/scale entries as a packed constant and as a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Region
from torq_byoc.kernels.rescaling import is_identity, is_uniform, pair_bytes, pair_type, pairs
from torq_byoc.kernels.views import View


def bias_axis(rescale: Rescale, rank: int) -> int | None:
    """Output axis along which the entries differ, non-negative; None when one entry serves all."""
    if rescale.axis is None or is_uniform(rescale):
        return None
    return rescale.axis % rank


def bias_constants(
    graph: OpGraph, node: Node, rescale: Rescale | None, *, is_float: bool
) -> tuple[PackedConstant, ...]:
    """One granule an entry along the rescale's axis; nothing when ACT needs no B operand.

    Args:
        rescale: the rescale to pack; the node's own, or one that a kernel derived from it.
        is_float: the D operand is float, so entries are fp32 biases.
    """
    if rescale is None or is_identity(rescale):
        return ()
    shape = graph.tensors[node.output].shape
    axis = bias_axis(rescale, len(shape))
    if axis is None:
        return (PackedConstant("bias", pairs(_first_entry(rescale), 1, is_float)),)
    return (PackedConstant("bias", pairs(rescale, shape[axis], is_float), axis),)


def _first_entry(rescale: Rescale) -> Rescale:
    scale = None if rescale.scale is None else np.atleast_1d(rescale.scale)[:1]
    return replace(rescale, bias=np.atleast_1d(rescale.bias)[:1], scale=scale)


def bias_view(
    rescale: Rescale | None, region: Region, constants: Sequence[ConstantPlacement], *, is_float: bool
) -> View | None:
    """The view of the entries that ``bias_constants`` packed (the last of ``constants``); None without."""
    if rescale is None or is_identity(rescale):
        return None
    rank, placed = len(region.start), constants[-1]
    axis = bias_axis(rescale, rank)
    if axis is None:
        return View(placed.granule(0), pair_type(is_float), (0,) * rank)
    strides = tuple(pair_bytes(is_float) if position == axis else 0 for position in range(rank))
    return View(placed.granule(region.start[axis]), pair_type(is_float), strides)
