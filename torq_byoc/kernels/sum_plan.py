"""How a weighted sum of two tensors runs: which operands the D bus carries, with which weights and biases.

y = rescale(a * wa + b * wb).  From cheapest to dearest:

* one operand is constant and varies along at most one axis: it becomes part of the bias entries;
* |wa| == |wb|: the ALU adds or subtracts without weights, the common factor joins the scale;
* otherwise both operands are multiplied by their weights, in one byte where both fit.

Factors move into the scale only where that changes no bit of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.kernels.bias_operand import bias_axis
from torq_byoc.kernels.elementwise import input_types
from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Op1, Rounding

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, eq=False)
class SumPlan:
    """The chosen form.

    Attributes:
        tensors: positions of the inputs that the D bus carries, one or two.
        fold: ACC, or SACC to subtract the second.
        weights: one weight an operand, in the type of the W operand; None when the ALU takes D as it is.
        rescale: what the B operand holds; differs from the node's by the folded constant and factor.
    """

    tensors: tuple[int, ...]
    fold: Op1
    weights: np.ndarray | None
    rescale: Rescale | None


def plan_sum(graph: OpGraph, node: Node) -> SumPlan | None:
    """Choose the form of a ``sum2`` node; None when no form can express its weights."""
    for constant in (1, 0):
        plan = _with_constant(graph, node, constant)
        if plan is not None:
            return plan
    return _of_tensors(graph, node)


def weights_as_seen(node: Node, data: DType) -> np.ndarray:
    """The two weights as the machine holds them: int64, or bf16 values."""
    weights = np.asarray(node.attrs["weights"])
    return weights.astype(DType.BF16.numpy if data.is_float else np.int64)


def _of_tensors(graph: OpGraph, node: Node) -> SumPlan | None:
    data = input_types(graph, node)[0]
    first, second = weights_as_seen(node, data)
    if abs(first) == abs(second):
        fold = Op1.ACC if first == second else Op1.SACC
        rescale, exact = _scaled(node.rescale, first, data, operands=2)
        if exact:
            return SumPlan((0, 1), fold, None, rescale)
    weights = _weights(np.array([first, second]), data)
    return None if weights is None else SumPlan((0, 1), Op1.ACC, weights, node.rescale)


def _with_constant(graph: OpGraph, node: Node, constant: int) -> SumPlan | None:
    """The plan with input ``constant`` moved into the bias entries, if it can be."""
    value = graph.constants.get(node.inputs[constant])
    if value is None:
        return None
    data = input_types(graph, node)[1 - constant]
    weights = weights_as_seen(node, data)
    rescale = _absorb(node.rescale, value, weights[constant], len(graph.tensors[node.output].shape))
    if rescale is None or not _sums_fit(rescale, data, int(abs(weights[1 - constant])), value, weights[constant]):
        return None
    weight = weights[1 - constant]
    folded, exact = _scaled(rescale, weight, data, operands=1)
    if exact:
        return SumPlan((1 - constant,), Op1.ACC, None, folded)
    packed = _weights(np.array([weight]), data)
    return None if packed is None else SumPlan((1 - constant,), Op1.ACC, packed, rescale)


def _absorb(rescale: Rescale | None, value: np.ndarray, weight: float, rank: int) -> Rescale | None:
    """The rescale with value * weight added to its bias; None when entries would vary along two axes, or
    leave int32."""
    base = rescale if rescale is not None else Rescale(np.zeros(1, np.int32))
    axes = [axis - value.ndim + rank for axis, size in enumerate(value.shape) if size > 1]
    own = bias_axis(base, rank)
    varying = {*axes, *(() if own is None else (own,))}
    if len(varying) > 1:
        return None
    is_float = not np.issubdtype(value.dtype, np.integer)
    wide = np.float32 if is_float else np.int64
    addend = value.reshape(-1).astype(wide) * np.asarray(weight, wide)
    bias = np.atleast_1d(base.bias).astype(wide) + addend
    if not is_float and not _in_int32(bias):
        return None
    scale = base.scale
    if scale is not None:
        scale = np.broadcast_to(np.atleast_1d(scale), bias.shape)
    return replace(
        base, bias=bias.astype(np.float32 if is_float else np.int32), scale=scale, axis=next(iter(varying), None)
    )


def _scaled(rescale: Rescale | None, factor: float, data: DType, operands: int) -> tuple[Rescale | None, bool]:
    """The rescale of a sum whose weights were divided by ``factor``, and whether it gives the same bits."""
    if factor == 1:
        return rescale, True
    base = rescale if rescale is not None else Rescale(np.zeros(1, np.int32))
    if data.is_float or factor == 0 or not _wraps_never(base, _largest(data) * abs(int(factor)) * operands):
        return None, False
    factor = int(factor)
    if factor < 0 and base.rounding is Rounding.DBL:  # it rounds by the sign of the sum
        return None, False
    bias = np.atleast_1d(base.bias).astype(np.int64)
    scale = np.atleast_1d(1 if base.scale is None else base.scale).astype(np.int64) * factor
    if np.any(bias % factor) or not _in_int32(scale) or not _in_int32(bias // factor):
        return None, False
    return replace(base, bias=(bias // factor).astype(np.int32), scale=scale.astype(np.int32)), True


def _weights(weights: np.ndarray, data: DType) -> np.ndarray | None:
    """Weights in the narrowest type of the W operand; None when the multiplier has none wide enough."""
    if data.is_float:
        return weights.astype(DType.BF16.numpy)
    for candidate in (DType.INT8, DType.INT16):
        low, high = candidate.integer_range
        if np.all((weights >= low) & (weights <= high)) and data.size * candidate.size <= 4:
            return weights.astype(candidate.numpy)
    return None


def _sums_fit(rescale: Rescale, data: DType, weight: int, value: np.ndarray, other: float) -> bool:
    """Whether the sum with the constant stays inside the accumulator, so that moving it past the sum's
    wrap-around changes nothing."""
    if data.is_float:
        return True
    largest = int(np.abs(value.astype(np.int64)).max(initial=0)) * abs(int(other))
    return _wraps_never(rescale, _largest(data) * weight + largest)


def _wraps_never(rescale: Rescale, bound: int) -> bool:
    return bound < 1 << (rescale.sum_bits - 1)


def _largest(data: DType) -> int:
    low, high = data.integer_range
    return max(-low, high)


def _in_int32(values: np.ndarray) -> bool:
    return bool(np.all((values >= _INT32.min) & (values <= _INT32.max)))
