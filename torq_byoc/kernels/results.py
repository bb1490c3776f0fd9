"""Whole-tensor references of the element-wise kernels: from numpy accumulators to the node's output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.kernels.rescaling import act_config, is_identity
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, ActMode
from torq_byoc.npu_model.numerics import apply_act


def widen(values: np.ndarray) -> np.ndarray:
    """Operands in a type where products and sums are exact: int64, or float64 for floats."""
    return values.astype(np.int64 if np.issubdtype(values.dtype, np.integer) else np.float64)


def node_act(node: Node, mode: ActMode, *operands: DType) -> ActConfig:
    """The ACT configuration of a node's rescale in a given mode."""
    return replace(act_config(node.rescale, *operands), mode=mode)


def finish(
    graph: OpGraph,
    node: Node,
    accumulators: np.ndarray,
    operands: Sequence[DType],
    mode: ActMode = ActMode.ACT,
    **options: Any,
) -> np.ndarray:
    """Apply a node's rescale to whole-tensor accumulators.

    Args:
        graph, node: the node and its graph, for the output's type and rank.
        accumulators: int64, or float64 where the ALU's result is a float.
        operands: types that meet in the ALU, which set the width of the sum.
        mode: the ACT mode.
        options: ``bias`` and ``scale`` in place of the rescale's own, ``table`` for look-ups.

    Returns:
        The output tensor.
    """
    info = graph.tensors[node.output]
    entries: Mapping[str, Any] = entries_for(node.rescale, len(info.shape)) | options
    is_float = not np.issubdtype(accumulators.dtype, np.integer)
    return apply_act(accumulators, node_act(node, mode, *operands), out=info.dtype, data_is_float=is_float, **entries)


def entries_for(rescale: Rescale | None, rank: int) -> dict[str, Any]:
    """Bias and scale of a rescale, shaped to broadcast against an output of the given rank."""
    if rescale is None:
        return {"bias": 0, "scale": None}
    scale = None if rescale.scale is None else _along(np.asarray(rescale.scale), rescale.axis, rank)
    return {"bias": _along(np.asarray(rescale.bias), rescale.axis, rank), "scale": scale}


def _along(values: np.ndarray, axis: int | None, rank: int) -> np.ndarray:
    if axis is None or values.size == 1:
        return values.reshape(-1)[0]
    shape = [1] * rank
    shape[axis] = values.size
    return values.reshape(shape)


def float_fold_vector(rescale: Rescale | None, data: DType, config: NpuConfig) -> int:
    """Lanes for a float maximum or minimum: 0 (the widest) when ACT only passes the result on.

    With a bias or a clip ACT must work in floats, and then a vector holds no more than ACT takes at once
    (hardware doc 2.3).
    """
    if not data.is_float or rescale is None:
        return 0
    clipped = rescale.clip_min != -math.inf or rescale.clip_max != math.inf
    return config.act_width(data, None) if clipped or not is_identity(rescale) else 0
