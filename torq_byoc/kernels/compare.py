"""Element-wise comparison of two tensors of one quantization; the result is a byte of 0 or 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.elementwise import input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, register
from torq_byoc.kernels.pairwise import PairFold, PairKernel, pair_tasks
from torq_byoc.kernels.result_boxes import ResultBox
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Op0, Op1, SliceTask

_RELATIONS = {"gt": (Op1.GT, np.greater), "ge": (Op1.GE, np.greater_equal), "eq": (Op1.EQ, np.equal)}


@register
class Compare(PairKernel):
    """``compare``: y = 1 where a > b, a >= b or a == b, else 0.  Less-than is the same with a and b exchanged."""

    op = "compare"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """0 or 1 in the output's type; comparisons with NaN are false."""
        with np.errstate(invalid="ignore"):
            holds = _RELATIONS[node.attrs["relation"]][1](inputs[0], inputs[1])
        return holds.astype(graph.tensors[node.output].dtype.numpy)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Operands of one type, an integer result, no rescale."""
        del config
        a, b = input_types(graph, node)
        if a is not b:
            return f"the operands are {a.value} and {b.value}"
        if node.attrs["relation"] not in _RELATIONS:
            return f"relation {node.attrs['relation']!r}; there are {', '.join(_RELATIONS)}"
        if graph.tensors[node.output].dtype.is_float or node.rescale is not None:
            return "a comparison gives integers 0 and 1 without a rescale"
        return None

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
        """See ``pairwise``; the ALU leaves integers, so ACT passes them on whatever the operands are."""
        del constants
        target, (a, b) = self.views(graph, node, region, output, inputs)
        fold = PairFold(AluConfig(Op0.DBYP, _RELATIONS[node.attrs["relation"]][0]), ActConfig())
        return pair_tasks(fold, ResultBox(region.extent, target, (a, b)), config)
