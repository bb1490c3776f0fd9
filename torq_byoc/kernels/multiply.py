"""Element-wise product of two tensors: one operand on the D bus, the other on the W bus.

D and W walk memory independently, so any broadcast is native; a factor that is constant along the lanes is
loaded once a row.  The kernel tries both assignments of the factors to the buses and keeps the cheaper.

The first factor may have a zero point: (a - z) * b = a * b - z * b, two steps of the ALU that ACT leaves it time for.
The second step reads z from the output's place, which is filled with it before and has an element for every index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.copies import fill_tasks
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, cheapest
from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.pairwise import like_boxes
from torq_byoc.kernels.rescaling import act_config
from torq_byoc.kernels.results import finish, widen
from torq_byoc.kernels.views import View, collapse, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Op0, Op1, Role, SliceTask

_PRODUCT = AluConfig(Op0.MUL, Op1.ACC)
_DIFFERENCE = AluConfig(Op0.MUL, Op1.SACC)
_STEP = "r"
_MAX_PRODUCT_BYTES = 4
"""The ALU multiplies size_D x size_W byte pairs, at most four (hardware doc 2.2)."""


@register
class Multiply(ElementwiseKernel):
    """``mul``: y = rescale((a - zero_point) * b)."""

    op = "mul"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Product in the machine's accumulator, then the rescale."""
        first = widen(inputs[0]) - zero_point(node) if zero_point(node) else widen(inputs[0])
        return finish(graph, node, first * widen(inputs[1]), input_types(graph, node))

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """The multiplier takes byte products, and bf16 only with bf16; a zero point needs a place in the output."""
        del config
        a, b = input_types(graph, node)
        if a.is_float != b.is_float:
            return f"a product of {a.value} and {b.value} mixes integers and floats"
        if a.size * b.size > _MAX_PRODUCT_BYTES:
            return f"a product of {a.value} and {b.value} needs {a.size * b.size} byte products, at most 4 exist"
        return _zero_point_problem(graph, node) if zero_point(node) else None

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The bias/scale entries."""
        del config
        return bias_constants(graph, node, node.rescale, is_float=input_types(graph, node)[0].is_float)

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
        """One task, the cheapest of both bus assignments and all lane loops; see the module for a zero point."""
        target, (a, b) = self.views(graph, node, region, output, inputs)
        bias = bias_view(node.rescale, region, constants, is_float=a.dtype.is_float)
        if zero_point(node):
            act = act_config(node.rescale, a.dtype, b.dtype)
            return _differences(_Factors(target, a, b, bias), zero_point(node), region.extent, act, config)
        operands = [target, a, b] + ([bias] if bias else [])
        extents, collapsed = collapse(region.extent, operands)
        act = act_config(node.rescale, a.dtype, b.dtype)

        def nests() -> Iterator[LoopNest]:
            out, first, second = collapsed[:3]
            pair = collapsed[3] if bias else None
            for walk in walks(extents, out):
                for data, weight in ((first, second), (second, first)):
                    yield LoopNest(
                        walk.loops,
                        walk.operand(out),
                        walk.operand(data),
                        walk.operand(weight),
                        walk.operand(pair) if pair else None,
                        _PRODUCT,
                        act,
                        vector=walk.vector,
                    )

        return [cheapest(nests(), config)]


def zero_point(node: Node) -> int:
    """What a ``mul`` node subtracts from its first factor."""
    return int(node.attrs.get("zero_point", 0))


def _zero_point_problem(graph: OpGraph, node: Node) -> str | None:
    first, target = graph.tensors[node.inputs[0]], graph.tensors[node.output]
    low, high = first.dtype.integer_range if not first.dtype.is_float else (0, 0)
    if not low <= zero_point(node) <= high:
        return f"zero point {zero_point(node)} is no {first.dtype.value}"
    if first.shape != target.shape or first.dtype.size != target.dtype.size:
        return "a factor with a zero point has the shape and the element size of the result"
    return None


@dataclass(frozen=True)
class _Factors:
    """The views of a product with a zero point over a box."""

    target: View
    first: View
    second: View
    bias: View | None

    def shifted(self, index: Sequence[int]) -> _Factors:
        """The views of the box that starts at an index."""
        bias = self.bias.shifted(index) if self.bias else None
        return _Factors(self.target.shifted(index), self.first.shifted(index), self.second.shifted(index), bias)


def _differences(
    views: _Factors, zero: int, extent: Sequence[int], act: ActConfig, config: NpuConfig
) -> list[SliceTask]:
    """Fill the output with the zero point, then first * second - output * second.

    D steps from the factor to the output, which must lie alike: axes along which they do not become one task an index.
    """
    zeros = replace(views.target, dtype=views.first.dtype)
    inner, starts = like_boxes(views.first, zeros, extent)
    tasks = fill_tasks(zeros, extent, zero, config)
    return tasks + [_difference(views.shifted(index), inner, act, config) for index in starts]


def _difference(views: _Factors, extent: Sequence[int], act: ActConfig, config: NpuConfig) -> SliceTask:
    operands = [views.target, views.first, views.second] + ([views.bias] if views.bias else [])
    extents, collapsed = collapse(extent, operands)
    step = {_STEP: views.target.address - views.first.address}

    def nests() -> Iterator[LoopNest]:
        for walk in walks(extents, collapsed[0]):
            yield LoopNest(
                (*walk.loops, LoopSpec(_STEP, 2, Role.REDUCE)),
                walk.operand(collapsed[0]),
                walk.operand(collapsed[1], step),
                walk.operand(collapsed[2]),
                walk.operand(collapsed[3]) if views.bias else None,
                _DIFFERENCE,
                act,
                vector=walk.vector,
            )

    return cheapest(nests(), config)
