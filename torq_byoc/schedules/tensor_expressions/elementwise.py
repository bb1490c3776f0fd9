"""Element-wise operators: one result stage, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.tensor_expressions.arithmetic import ActStage, widen
from torq_byoc.schedules.tensor_expressions.broadcasting import broadcast_element
from torq_byoc.schedules.tensor_expressions.definition import RESULT, Operands, defines

Combine = Callable[[Any, Any], Any]


@defines("sum2")
def sum2(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """a * wa + b * wb."""
    weights = [_constant(weight, graph.tensors[node.inputs[0]].dtype) for weight in node.attrs["weights"]]
    return _binary(graph, node, operands, lambda a, b: a * weights[0] + b * weights[1])


@defines("mul")
def mul(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """a * b."""
    return _binary(graph, node, operands, lambda a, b: a * b)


@defines("maximum", "minimum")
def extremum(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """max(a, b) or min(a, b)."""
    from tvm import te

    return _binary(graph, node, operands, te.max if node.op == "maximum" else te.min)


@defines("compare")
def compare(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """1 where the relation holds, else 0."""
    from tvm import tirx

    relation = node.attrs["relation"]

    def hold(a: Any, b: Any) -> Any:
        holds = a > b if relation == "gt" else a >= b if relation == "ge" else tirx.EQ(a, b)
        return holds.astype("int64")

    return _binary(graph, node, operands, hold)


@defines("broadcast")
def broadcast(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """x to the output's shape."""
    from tvm import te

    shape = graph.tensors[node.output].shape
    return te.compute(shape, lambda *index: broadcast_element(operands.inputs[0], index), name=RESULT)


def _binary(graph: OpGraph, node: Node, operands: Operands, combine: Combine) -> Any:
    from tvm import te

    stage = ActStage.of(graph, node, operands)
    types = [graph.tensors[name].dtype for name in node.inputs[:2]]

    def element(*index: Any) -> Any:
        a, b = (
            widen(broadcast_element(tensor, index), dtype)
            for tensor, dtype in zip(operands.inputs[:2], types, strict=True)
        )
        return stage.requantize(combine(a, b), index)

    return te.compute(stage.shape, element, name=RESULT)


def _constant(value: float, dtype: DType) -> Any:
    from tvm import tirx

    return tirx.const(float(value), "float64") if dtype.is_float else tirx.const(int(value), "int64")
