"""Integer division by a constant zero, which no machine defines."""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import DEFAULT_DOMAINS, array_of, constant_tensors, describe

_OPERATORS = ("Div", "Mod")


def check_divisions(model: onnx.ModelProto) -> None:
    """ModelFileError for a Div or Mod of integers whose constant divisor holds a zero."""
    constants = constant_tensors(model.graph)
    for node in model.graph.node:
        if node.op_type in _OPERATORS and node.domain in DEFAULT_DOMAINS and len(node.input) == 2:
            check_divisor(node, array_of(constants, node.input[1]))


def check_divisor(node: onnx.NodeProto, divisor: np.ndarray | None) -> None:
    """``check_divisions`` for one node; None is a divisor from run time."""
    if node.op_type in _OPERATORS and divisor is not None and divisor.dtype.kind in "iu" and not np.all(divisor):
        raise ModelFileError(
            "Integers are divided by zero",
            where=describe(node),
            why=f"its divisor {node.input[1]!r} is a constant of shape {list(divisor.shape)} that holds a zero",
            remedy="correct the divisor, or divide floats",
        )
