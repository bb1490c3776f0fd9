"""Slopes a channel: the larger of two multiples of a tensor, and the weighted sum of two tensors.

A function of two straight pieces that meet in x = 0 is the larger of two multiples of x: the ALU takes both products
of an element and keeps the larger while ACT is busy with those before, so the pass costs what a copy costs.  Pieces
that meet elsewhere are a sum of x and x cut off there.

Weights are a tensor int8[rows, n]; its columns run along an axis of the output, or there is one for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, cheapest
from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.pairwise import PairFold, PairKernel, WeightSteps, fold_boxes
from torq_byoc.kernels.rescaling import act_config
from torq_byoc.kernels.result_boxes import ResultBox, result_boxes
from torq_byoc.kernels.results import finish, widen
from torq_byoc.kernels.views import View, collapse, view, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Op0, Op1, Role, SliceTask

_ROW = "row"


class _Weighted(ElementwiseKernel):
    """What both operators share: data tensors of the output's shape, then the weights."""

    writes_phases = True

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Data of one byte (products of more are spread over several accumulators), and weights that fit it."""
        del config
        *data, weights = input_types(graph, node)
        out = graph.tensors[node.output].shape
        if any(kind is not data[0] or kind.size != 1 for kind in data):
            return f"the operands are {', '.join(kind.value for kind in data)}, not of one byte and alike"
        if any(graph.tensors[name].shape != out for name in node.inputs[:-1]):
            return "an operand would have to be broadcast"
        rows, columns = graph.tensors[node.inputs[-1]].shape
        fits = columns in (1, out[_axis(node)]) and (rows == 2 if len(data) == 1 else rows % 2 == 0)
        if weights.size != 1 or weights.is_float or not fits:
            return f"its weights are {weights.value}[{rows}, {columns}]"
        return None

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The bias/scale entries."""
        del config
        return bias_constants(graph, node, node.rescale, is_float=False)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The same box of data; of the weights all rows, and the columns of the box."""
        if position < len(node.inputs) - 1:
            return output
        rows, columns = graph.tensors[node.inputs[position]].shape
        axis = _axis(node)
        if columns == 1:
            return Region((0, 0), (rows, 1))
        return Region((0, output.start[axis]), (rows, output.extent[axis]))

    def boxes(
        self,
        graph: OpGraph,
        node: Node,
        region: Region,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[ResultBox]:
        """The boxes of an output tile with all their operands."""
        *data, weights = inputs
        axis, strides, first = _axis(node), [0] * len(region.start), 0
        if graph.tensors[node.inputs[-1]].shape[1] > 1:
            strides[axis], first = weights.strides[1], region.start[axis]
        weight = View(weights.offset_of((0, first)), weights.dtype, tuple(strides))
        bias = bias_view(node.rescale, region, constants, is_float=False)
        return result_boxes(output, region, [view(tile, region.start) for tile in data], bias, weight)


@register
class WeightedMax(_Weighted):
    """``weighted_max``: y = rescale(max(x * weights[0], x * weights[1]))."""

    op = "weighted_max"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The larger product, rescaled."""
        x, (first, second) = widen(inputs[0]), _rows(graph, node, inputs[1])
        return finish(graph, node, np.maximum(x * first, x * second), input_types(graph, node)[:1])

    def tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """One pass a box."""
        act = act_config(node.rescale, inputs[0].dtype)
        boxes = self.boxes(graph, node, region, output, inputs, constants)
        return [_larger_product(box, inputs[1].strides[0], act, config) for box in boxes]


@register
class WeightedSum(_Weighted, PairKernel):
    """``weighted_sum``: y = rescale(a * wa + b * wb), wa the sum of the first half of the rows, wb that of the others.

    Two rows an operand cost no more than one: ACT takes as long as four products.
    """

    op = "weighted_sum"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The weighted sum, rescaled."""
        rows = _rows(graph, node, inputs[2])
        half = len(rows) // 2
        total = widen(inputs[0]) * sum(rows[:half]) + widen(inputs[1]) * sum(rows[half:])
        return finish(graph, node, total, input_types(graph, node)[:1])

    def needs_broadcast(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """None: the operands have the output's shape."""
        del graph, node
        return ()

    def tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """See ``pairwise``."""
        row, taps = inputs[2].strides[0], inputs[2].region.extent[0] // 2
        steps = WeightSteps(taps * row, row, taps)
        fold = PairFold(AluConfig(Op0.MUL, Op1.ACC), act_config(node.rescale, inputs[0].dtype), steps)
        return fold_boxes(fold, self.boxes(graph, node, region, output, inputs, constants), config)


def _axis(node: Node) -> int:
    return int(node.attrs["axis"])


def _rows(graph: OpGraph, node: Node, weights: np.ndarray) -> list[np.ndarray]:
    """The rows of weights, each in a shape that broadcasts to the output."""
    shape = [1] * len(graph.tensors[node.output].shape)
    shape[_axis(node)] = -1
    return [row.reshape(shape) for row in widen(weights)]


def _larger_product(box: ResultBox, row: int, act: ActConfig, config: NpuConfig) -> SliceTask:
    """The task of one box; ``row`` bytes lie between an element's two weights."""
    assert box.weight is not None
    views = [box.target, *box.operands, box.weight, *([box.bias] if box.bias else [])]
    extents, (out, data, weight, *bias) = collapse(box.extent, views)

    def nests() -> Iterator[LoopNest]:
        for walk in walks(extents, out):
            yield LoopNest(
                (*walk.loops, LoopSpec(_ROW, 2, Role.REDUCE)),
                walk.operand(out),
                walk.operand(data),
                walk.operand(weight, {_ROW: row}),
                walk.operand(bias[0]) if bias else None,
                AluConfig(Op0.MUL, Op1.MAX),
                act,
                window=out.window,
                vector=walk.vector,
            )

    return cheapest(nests(), config)
