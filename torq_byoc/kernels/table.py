"""Element-wise functions of one variable by the ACT unit's look-up table."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.result_boxes import result_boxes
from torq_byoc.kernels.results import entries_for, node_act, widen
from torq_byoc.kernels.unary import unary_task
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, ActMode, SliceTask
from torq_byoc.npu_model.numerics import apply_act, register_bound


@register
class Table(ElementwiseKernel):
    """``table``: the rescale makes an int16 index of x, the table a value of it; two results a cycle."""

    op = "table"
    writes_phases = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Index, look-up, output zero point and clip."""
        info = graph.tensors[node.output]
        entries = entries_for(node.rescale, len(info.shape))
        act = _table_act(graph, node)
        return apply_act(widen(inputs[0]), act, out=info.dtype, table=node.attrs["table"], **entries)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Integers in and out, 512 entries, nothing between shift and look-up."""
        source, target = input_types(graph, node)[0], graph.tensors[node.output].dtype
        if source.is_float or target.is_float:
            return f"the table maps integers, not {source.value} to {target.value}"
        if np.shape(node.attrs["table"]) != (config.table_entries, 2):
            return f"the table has shape {np.shape(node.attrs['table'])}, not ({config.table_entries}, 2)"
        rescale = node.rescale
        if rescale and (rescale.zero_point or rescale.clip_min != -math.inf or rescale.clip_max != math.inf):
            return "zero point and clip act after the look-up only (out_zero_point, clip_min, clip_max)"
        return None

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The bias/scale entries; the table itself is part of the program."""
        del config
        return bias_constants(graph, node, node.rescale, is_float=False)

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
        """One pass, or one a stride phase."""
        sources = self.operands(graph, node, region, inputs)
        bias = bias_view(node.rescale, region, constants, is_float=False)
        table = _entries(np.asarray(node.attrs["table"], dtype=np.int64).tobytes())
        act = _table_act(graph, node)
        boxes = result_boxes(output, region, sources, bias)
        return [unary_task(box.target, box.operands[0], box.bias, box.extent, act, config, table) for box in boxes]


@functools.lru_cache(maxsize=64)
def _entries(table: bytes) -> tuple[tuple[int, int], ...]:
    """(base, slope) pairs of a table of int64: all tiles of a node share theirs."""
    return tuple((base, slope) for base, slope in np.frombuffer(table, np.int64).reshape(-1, 2).tolist())


def _table_act(graph: OpGraph, node: Node) -> ActConfig:
    return replace(
        node_act(node, ActMode.TABLE, *input_types(graph, node)),
        zero_point=int(node.attrs.get("out_zero_point", 0)),
        clip_min=register_bound(node.attrs.get("clip_min", -math.inf)),
        clip_max=register_bound(node.attrs.get("clip_max", math.inf)),
    )
