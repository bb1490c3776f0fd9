"""Element-wise operators: one result stage, with broadcasting."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.multiply import zero_point
from torq_byoc.kernels.sum_plan import weights_as_seen
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.schedules.tensor_expressions.arithmetic import ActStage, integer, scaled, widen, wrap
from torq_byoc.schedules.tensor_expressions.broadcasting import broadcast_element
from torq_byoc.schedules.tensor_expressions.definition import RESULT, Operands, defines

Combine = Callable[[Any, Any], Any]


@defines("sum2")
def sum2(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """a * wa + b * wb."""
    data = graph.tensors[node.inputs[0]].dtype
    weights = [_constant(weight, data) for weight in weights_as_seen(node, data)]
    return _binary(graph, node, operands, lambda a, b: a * weights[0] + b * weights[1])


@defines("mul")
def mul(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """(a - zero point) * b."""
    zero = zero_point(node)
    return _binary(graph, node, operands, lambda a, b: (a - integer(zero)) * b if zero else a * b)


@defines("maximum", "minimum")
def extremum(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """max(a, b) or min(a, b)."""
    from tvm import te

    return _binary(graph, node, operands, te.max if node.op == "maximum" else te.min)


@defines("weighted_max", "weighted_sum")
def weighted(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """The larger of two multiples of x, or a weighted sum; weights along an axis."""
    from tvm import te

    stage, axis = ActStage.of(graph, node, operands), int(node.attrs["axis"])
    *data, weights = operands.inputs
    rows, columns = graph.tensors[node.inputs[-1]].shape

    def element(*index: Any) -> Any:
        column = index[axis] if columns > 1 else 0
        factors = [weights[row, column].astype("int64") for row in range(rows)]
        values = [tensor(*index).astype("int64") for tensor in data]
        if len(values) == 1:
            return stage.requantize(te.max(*(values[0] * factor for factor in factors)), index)
        products = [values[2 * row // rows] * factor for row, factor in enumerate(factors)]
        return stage.requantize(functools.reduce(operator.add, products), index)

    return te.compute(stage.shape, element, name=RESULT)


@defines("compare")
def compare(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """1 where the relation holds, else 0."""
    from tvm import te, tirx

    info, relation = graph.tensors[node.output], node.attrs["relation"]

    def element(*index: Any) -> Any:
        a, b = _widened(graph, node, operands, index)
        holds = a > b if relation == "gt" else a >= b if relation == "ge" else tirx.EQ(a, b)
        return holds.astype(info.dtype.value)

    return te.compute(info.shape, element, name=RESULT)


@defines("scale_rows")
def scale_rows(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Rescale with the bias/scale entries of the second input."""
    from tvm import te

    stage = ActStage.of(graph, node, operands)
    data, entries = (graph.tensors[name] for name in node.inputs)

    def element(*index: Any) -> Any:
        place = [
            0 if size == 1 else i for size, i in zip(entries.shape[:-1], index[-len(entries.shape) + 1 :], strict=True)
        ]
        value = widen(broadcast_element(operands.inputs[0], index), data.dtype)
        bias = operands.inputs[1](*place, 0)
        if data.dtype.is_float:
            return stage.finish(value.astype("float32") + bias, index)
        shift, rounding = (0, Rounding.NTP) if node.rescale is None else (node.rescale.shift, node.rescale.rounding)
        total = wrap(value, stage.sum_bits) + bias.astype("int64")
        return stage.narrow(scaled(total, operands.inputs[1](*place, 1).astype("int64"), shift, rounding))

    return te.compute(stage.shape, element, name=RESULT)


@defines("broadcast")
def broadcast(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """x to the output's shape."""
    from tvm import te

    shape = graph.tensors[node.output].shape
    return te.compute(shape, lambda *index: broadcast_element(operands.inputs[0], index), name=RESULT)


def _binary(graph: OpGraph, node: Node, operands: Operands, combine: Combine) -> Any:
    from tvm import te

    stage = ActStage.of(graph, node, operands)

    def element(*index: Any) -> Any:
        return stage.requantize(combine(*_widened(graph, node, operands, index)), index)

    return te.compute(stage.shape, element, name=RESULT)


def _widened(graph: OpGraph, node: Node, operands: Operands, index: Sequence[Any]) -> list[Any]:
    """Both operands' elements at an output position."""
    pairs = zip(operands.inputs[:2], node.inputs, strict=True)
    return [widen(broadcast_element(tensor, index), graph.tensors[name].dtype) for tensor, name in pairs]


def _constant(value: float, dtype: DType) -> Any:
    from tvm import tirx

    return tirx.const(float(value), "float64") if dtype.is_float else tirx.const(int(value), "int64")
