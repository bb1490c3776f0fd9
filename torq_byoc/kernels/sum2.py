"""Weighted sum of two tensors; ``sum_plan`` says in which of its forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from torq_byoc.errors import KernelError
from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.dsl import LoopNest, Operand, cheapest
from torq_byoc.kernels.elementwise import input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.pairwise import PairFold, PairKernel, WeightSteps, fold_boxes
from torq_byoc.kernels.rescaling import entry_kinds
from torq_byoc.kernels.result_boxes import ResultBox, result_boxes
from torq_byoc.kernels.results import finish, node_act, widen
from torq_byoc.kernels.sum_plan import SumPlan, plan_sum, weights_as_seen
from torq_byoc.kernels.views import View, collapse, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, ActMode, AluConfig, Op0, SliceTask


@register
class Sum2(PairKernel):
    """``sum2``: y = rescale(a * wa + b * wb)."""

    op = "sum2"
    writes_phases = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The weighted sum in the machine's accumulator, then the rescale."""
        data = input_types(graph, node)[0]
        first, second = widen(weights_as_seen(node, data))
        return finish(graph, node, widen(inputs[0]) * first + widen(inputs[1]) * second, (data,))

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Operands of one type that the ALU accumulates, and weights that the multiplier has."""
        del config
        a, b = input_types(graph, node)
        if a is not b:
            return f"the operands are {a.value} and {b.value}"
        if a is DType.FP32:
            return f"the ALU does not accumulate {a.value}"
        if plan_sum(graph, node) is None:
            return f"weights {node.attrs['weights']} do not fit the multiplier for {a.value}"
        return None

    def cost_attributes(self, graph: OpGraph, node: Node) -> Mapping[str, Any]:
        """The form of the sum, and of weights that the ALU multiplies by their type alone: form and entries follow from
        the values of a constant operand, which no other attribute shows."""
        plan = plan_sum(graph, node)
        if plan is None:
            return node.attrs
        weights = node.attrs["weights"] if plan.weights is None else plan.weights.dtype.name
        entries = (entry_kinds(plan.rescale), plan.rescale and plan.rescale.axis)
        return {**node.attrs, "weights": weights, "form": (plan.tensors, plan.fold, entries)}

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """The operands on the D bus; a constant that became part of the bias is not among them."""
        return _plan(graph, node).tensors

    def needs_broadcast(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """None when one operand is part of the bias, or when the node is unsupported anyway."""
        plan = plan_sum(graph, node)
        return super().needs_broadcast(graph, node) if plan and len(plan.tensors) == 2 else ()

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """Weights, where the ALU multiplies, then the bias/scale entries."""
        del config
        plan = _plan(graph, node)
        packed = bias_constants(graph, node, plan.rescale, is_float=input_types(graph, node)[0].is_float)
        if plan.weights is None:
            return packed
        return (PackedConstant("weights", plan.weights.view(np.uint8).reshape(1, -1)), *packed)

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
        """One pass over one tensor, or a fold of two (see ``pairwise``)."""
        plan = _plan(graph, node)
        operands = self.operands(graph, node, region, inputs)
        data = operands[0].dtype
        bias = bias_view(plan.rescale, region, constants, is_float=data.is_float)
        act = node_act(node, ActMode.ACT, data)
        alu = AluConfig(Op0.DBYP if plan.weights is None else Op0.MUL, plan.fold)
        weight, steps = None, None
        if plan.weights is not None:
            kind = DType.of(plan.weights.dtype)
            weight = View(constants[0].granule(0), kind, (0,) * len(region.start))
            steps = WeightSteps(kind.size)
        boxes = result_boxes(output, region, operands, bias, weight)
        if len(operands) == 2:
            return fold_boxes(PairFold(alu, act, steps), boxes, config)
        return [_single(alu, act, box, config) for box in boxes]


def _plan(graph: OpGraph, node: Node) -> SumPlan:
    plan = plan_sum(graph, node)
    if plan is None:
        raise KernelError(
            "a weighted sum whose weights do not fit the multiplier",
            where=node.origin or node.name,
            why=f"weights {node.attrs['weights']}",
            remedy="ask the kernel's unsupported() first and keep such a sum on the CPU",
        )
    return plan


def _single(
    alu: AluConfig,
    act: ActConfig,
    box: ResultBox,
    config: NpuConfig,
) -> SliceTask:
    """One tensor times one weight, the other operand in the bias."""
    extents, views = collapse(box.extent, (box.target, *box.operands, *([box.bias] if box.bias else [])))
    factor = Operand(box.weight.address, box.weight.dtype) if box.weight else None

    def nests() -> Iterator[LoopNest]:
        for walk in walks(extents, views[0]):
            yield LoopNest(
                walk.loops,
                walk.operand(views[0]),
                walk.operand(views[1]),
                factor,
                walk.operand(views[2]) if box.bias else None,
                alu,
                act,
                window=views[0].window,
                vector=walk.vector,
            )

    return cheapest(nests(), config)
