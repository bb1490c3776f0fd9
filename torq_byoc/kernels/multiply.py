"""Element-wise product of two tensors: one operand on the D bus, the other on the W bus.

D and W walk memory independently, so any broadcast is native; a factor that is constant along the lanes is
loaded once a row.  The kernel tries both assignments of the factors to the buses and keeps the cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.dsl import LoopNest, cheapest
from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.rescaling import act_config
from torq_byoc.kernels.results import finish, widen
from torq_byoc.kernels.views import collapse, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, SliceTask

_PRODUCT = AluConfig(Op0.MUL, Op1.ACC)
_MAX_PRODUCT_BYTES = 4
"""The ALU multiplies size_D x size_W byte pairs, at most four (hardware doc 2.2)."""


@register
class Multiply(ElementwiseKernel):
    """``mul``: y = rescale(a * b)."""

    op = "mul"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Product in the machine's accumulator, then the rescale."""
        return finish(graph, node, widen(inputs[0]) * widen(inputs[1]), input_types(graph, node))

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """The multiplier takes byte products, and bf16 only with bf16."""
        del config
        a, b = input_types(graph, node)
        if a.is_float != b.is_float:
            return f"a product of {a.value} and {b.value} mixes integers and floats"
        if a.size * b.size > _MAX_PRODUCT_BYTES:
            return f"a product of {a.value} and {b.value} needs {a.size * b.size} byte products, at most 4 exist"
        return None

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
        """One task: the cheapest of both bus assignments and all lane loops."""
        target, (a, b) = self.views(graph, node, region, output, inputs)
        bias = bias_view(node.rescale, region, constants, is_float=a.dtype.is_float)
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
