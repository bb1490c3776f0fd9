"""Unary element-wise operators that are a mode of the ACT unit: requantize, clip, casts, abs, shifts, ..."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.pair_tensor import entries_problem, entries_region, entries_view
from torq_byoc.kernels.result_boxes import result_boxes
from torq_byoc.kernels.results import finish, node_act, widen
from torq_byoc.kernels.unary import unary_task
from torq_byoc.kernels.views import broadcast_view
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActMode, SliceTask

_SHIFTS = frozenset({ActMode.LSL, ActMode.LSR, ActMode.ASR})
_KINDS = {
    ActMode.ACT: {("int", "int"), ("float", "float")},
    ActMode.ABS: {("int", "int"), ("float", "float")},
    ActMode.NEG: {("int", "int"), ("float", "float")},
    ActMode.CEL: {("float", "float")},
    ActMode.FLR: {("float", "float")},
    ActMode.I2F: {("int", "float")},
    ActMode.F2I: {("float", "int")},
    ActMode.CLZ: {("int", "int")},
    ActMode.LSL: {("int", "int")},
    ActMode.LSR: {("int", "int")},
    ActMode.ASR: {("int", "int")},
}


def act_mode(node: Node) -> ActMode:
    """The ACT mode of an ``act`` node."""
    return ActMode[node.attrs.get("mode", "ACT")]


@register
class Act(ElementwiseKernel):
    """``act``: one ACT mode with the node's rescale; shifts take their amounts from a second input."""

    op = "act"
    writes_phases = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The mode applied to every element."""
        mode, options = act_mode(node), {}
        if mode in _SHIFTS:
            options = {"bias": inputs[1][..., 0], "scale": inputs[1][..., 1]}
        return finish(graph, node, widen(inputs[0]), input_types(graph, node)[:1], mode, **options)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """A mode that exists for these types, with shift amounts exactly where they are needed."""
        del config
        name = node.attrs.get("mode", "ACT")
        if name not in ActMode.__members__ or ActMode[name] not in _KINDS:
            return f"there is no unary mode {name!r}"
        mode, source, target = ActMode[name], input_types(graph, node)[0], graph.tensors[node.output].dtype
        if (_kind(source), _kind(target)) not in _KINDS[mode]:
            return f"mode {name} does not turn {source.value} into {target.value}"
        if mode in _SHIFTS:
            return entries_problem(graph, node, source) if len(node.inputs) == 2 else "a shift has two inputs"
        return None

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The bias/scale entries; none for shifts, whose entries are a tensor."""
        del config
        if act_mode(node) in _SHIFTS:
            return ()
        return bias_constants(graph, node, node.rescale, is_float=input_types(graph, node)[0].is_float)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The same box of the data; the shift amounts of that box."""
        if position == 1:
            return entries_region(graph.tensors[node.inputs[1]].shape, output)
        return super().input_region(graph, node, position, output)

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
        mode = act_mode(node)
        data = graph.tensors[node.inputs[0]]
        bias = bias_view(node.rescale, region, constants, is_float=data.dtype.is_float)
        if mode in _SHIFTS:
            bias = entries_view(inputs[1], graph.tensors[node.inputs[1]].shape, region)
        source = broadcast_view(inputs[0], data.shape, region)
        act = node_act(node, mode, data.dtype)
        boxes = result_boxes(output, region, [source], bias)
        return [unary_task(box.target, box.operands[0], box.bias, box.extent, act, config) for box in boxes]


def _kind(dtype: DType) -> str:
    return "float" if dtype.is_float else "int"
