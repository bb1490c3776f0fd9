"""Element-wise maximum and minimum of two tensors of one quantization."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.elementwise import input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.pairwise import PairFold, PairKernel, fold_boxes
from torq_byoc.kernels.rescaling import act_config
from torq_byoc.kernels.result_boxes import result_boxes
from torq_byoc.kernels.results import finish, float_fold_vector, widen
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, SliceTask


class _Extremum(PairKernel):
    """Common part of ``maximum`` and ``minimum``."""

    writes_phases = True
    fold: Op1
    select: Callable[..., np.ndarray]

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The larger (smaller) element, rescaled; a NaN in either operand gives a NaN."""
        chosen = type(self).select(widen(inputs[0]), widen(inputs[1]))
        return finish(graph, node, chosen, input_types(graph, node)[:1])

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Both operands share the D bus, so they are of one type."""
        del config
        a, b = input_types(graph, node)
        return None if a is b else f"the operands are {a.value} and {b.value}"

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
        """See ``pairwise``."""
        a, b = self.operands(graph, node, region, inputs)
        fold = PairFold(
            AluConfig(Op0.DBYP, self.fold),
            act_config(node.rescale, a.dtype),
            vector=float_fold_vector(node.rescale, a.dtype, config),
        )
        bias = bias_view(node.rescale, region, constants, is_float=a.dtype.is_float)
        return fold_boxes(fold, result_boxes(output, region, (a, b), bias), config)


@register
class Maximum(_Extremum):
    """``maximum``: y = rescale(max(a, b))."""

    op = "maximum"
    fold = Op1.MAX
    select = staticmethod(np.maximum)


@register
class Minimum(_Extremum):
    """``minimum``: y = rescale(min(a, b))."""

    op = "minimum"
    fold = Op1.MIN
    select = staticmethod(np.minimum)
