"""Interleaving two rows of bytes: each pair of neighbours in the result is one product sum of 16 bits.

    x[0] = a b c ...              word k = x[0][k] + 256 * x[1][k]
    x[1] = A B C ...   ->         a A b B c C ...

A copy writes elements two bytes apart, two a cycle; the sums lie side by side, sixteen bytes a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand
from torq_byoc.kernels.kernel import PackedConstant
from torq_byoc.kernels.views import View
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Op0, Op1, Role

_WEIGHTS = np.array([1, 256], "<i2")


def interleaves(shape: Sequence[int], order: Sequence[int], dtype: DType) -> bool:
    """Whether a transposition puts two rows of bytes into one.

    Args:
        shape: of the result.
        order: the axis of the operand that each of its axes is.
        dtype: of the elements.
    """
    return dtype.size == 1 and len(shape) > 1 and shape[-1] == 2 and order[-2] == len(order) - 1


def pair_weights() -> PackedConstant:
    """What the two bytes of a word count."""
    return PackedConstant("pair weights", _WEIGHTS.view(np.uint8).reshape(1, -1))


def interleaving_nest(source: View, target: View, extent: Sequence[int], weights: int) -> LoopNest | None:
    """The nest that interleaves a box, pairs along its last axis; None where the box holds no whole pairs side by side.

    Args:
        source, target: views over the box, of elements of one byte.
        extent: the box.
        weights: LRAM address of the ``pair_weights``.
    """
    pair, lane = len(extent) - 1, len(extent) - 2
    if extent[pair] != 2 or target.strides[lane:] != (2, 1) or source.strides[lane] != 1:
        return None
    outer = range(lane)
    loops = [LoopSpec(f"x{axis}", extent[axis]) for axis in outer]
    loops += [LoopSpec(f"x{lane}", extent[lane], Role.LANE), LoopSpec(f"x{pair}", 2, Role.REDUCE)]
    return LoopNest(
        tuple(loops),
        Operand(target.address, DType.UINT16, {f"x{axis}": target.strides[axis] for axis in (*outer, lane)}),
        Operand(source.address, DType.UINT8, {f"x{axis}": step for axis, step in enumerate(source.strides)}),
        Operand(weights, DType.INT16, {f"x{pair}": 2}),
        alu=AluConfig(Op0.MUL, Op1.ACC),
        act=ActConfig(sum_bits=48),
    )
