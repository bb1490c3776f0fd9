"""Element-wise product of two tensors: one operand on the D bus, the other on the W bus.

D and W walk memory independently, so any broadcast is native; a factor that is constant along the lanes is
loaded once a row.  The kernel tries both assignments of the factors to the buses and keeps the cheaper.

The first factor may have a zero point: (a - z) * b = a * b - z * b, two steps of the ALU for which ACT leaves time.
The lanes then walk a plane of pixels, and the second step is a kernel row below it, where D reads the padding: z.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, cheapest
from torq_byoc.kernels.elementwise import ElementwiseKernel, input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.rescaling import act_config
from torq_byoc.kernels.result_boxes import ResultBox, result_boxes
from torq_byoc.kernels.results import finish, widen
from torq_byoc.kernels.views import View, Walk, collapse, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Op0, Op1, Plane, Role, SliceTask, Tag

_PRODUCT = AluConfig(Op0.MUL, Op1.ACC)
_DIFFERENCE = AluConfig(Op0.MUL, Op1.SACC)
_BELOW = LoopSpec("below", 2, Role.REDUCE, Tag.KERNEL_ROW)
_MAX_PRODUCT_BYTES = 4
"""The ALU multiplies size_D x size_W byte pairs, at most four (hardware doc 2.2)."""


@register
class Multiply(ElementwiseKernel):
    """``mul``: y = rescale((a - zero_point) * b)."""

    op = "mul"
    writes_phases = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Product in the machine's accumulator, then the rescale."""
        first = widen(inputs[0]) - zero_point(node) if zero_point(node) else widen(inputs[0])
        return finish(graph, node, first * widen(inputs[1]), input_types(graph, node))

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """The multiplier takes byte products, and bf16 only with bf16; the padding is of the first factor's type."""
        del config
        a, b = input_types(graph, node)
        if a.is_float != b.is_float:
            return f"a product of {a.value} and {b.value} mixes integers and floats"
        if a.size * b.size > _MAX_PRODUCT_BYTES:
            return f"a product of {a.value} and {b.value} needs {a.size * b.size} byte products, at most 4 exist"
        low, high = (0, 0) if a.is_float else a.integer_range
        if not low <= zero_point(node) <= high:
            return f"zero point {zero_point(node)} is no {a.value}"
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
        """One task, or one a stride phase: the cheapest of all bus assignments and lane loops."""
        operands = self.operands(graph, node, region, inputs)
        types = [operand.dtype for operand in operands]
        bias = bias_view(node.rescale, region, constants, is_float=types[0].is_float)
        act = act_config(node.rescale, *types)
        boxes = result_boxes(output, region, operands, bias, apart=True)
        return [cheapest(_nests(_Factors.of(box), act, zero_point(node)), config) for box in boxes]


def zero_point(node: Node) -> int:
    """What a ``mul`` node subtracts from its first factor."""
    return int(node.attrs.get("zero_point", 0))


@dataclass(frozen=True)
class _Factors:
    """A box without needless axes: the result, both factors, and the B operand where there is one."""

    extents: tuple[int, ...]
    target: View
    first: View
    second: View
    bias: View | None

    @classmethod
    def of(cls, box: ResultBox) -> _Factors:
        """The factors of an output box."""
        views = (box.target, *box.operands, *([box.bias] if box.bias else []))
        extents, collapsed = collapse(box.extent, views)
        target, first, second = collapsed[:3]
        return cls(extents, target, first, second, collapsed[3] if box.bias else None)

    def with_unit_axis(self) -> _Factors:
        """The same box with one more axis, of extent 1."""

        def longer(view: View) -> View:
            return replace(view, strides=(*view.strides, 0))

        bias = longer(self.bias) if self.bias else None
        return _Factors((*self.extents, 1), longer(self.target), longer(self.first), longer(self.second), bias)

    def nest(self, walk: Walk, alu: AluConfig, act: ActConfig, *, swapped: bool = False) -> LoopNest:
        """The product along a walk, the first factor on the D bus unless swapped."""
        data, weight = (self.second, self.first) if swapped else (self.first, self.second)
        return LoopNest(
            walk.loops,
            walk.operand(self.target),
            walk.operand(data),
            walk.operand(weight),
            walk.operand(self.bias) if self.bias else None,
            alu,
            act,
            window=self.target.window,
            vector=walk.vector,
        )


def _nests(factors: _Factors, act: ActConfig, zero: int) -> Iterator[LoopNest]:
    """All ways to multiply over a box."""
    if zero:
        yield from _differences(factors, act, zero)
        return
    for walk in walks(factors.extents, factors.target):
        yield factors.nest(walk, _PRODUCT, act)
        yield factors.nest(walk, _PRODUCT, act, swapped=True)


def _differences(factors: _Factors, act: ActConfig, zero: int) -> Iterator[LoopNest]:
    """Lanes along the contiguous axes of the first factor; one lane where it has none."""
    size = factors.first.dtype.size
    along = [
        walk
        for walk in walks(factors.extents, factors.target)
        if walk.loops[-1].extent == 1 or factors.first.strides[walk.axes[-1]] == size
    ]
    if not along:
        yield from _differences(factors.with_unit_axis(), act, zero)
    for walk in along:
        yield _of_plane(factors.nest(walk, _DIFFERENCE, act), walk.loops[-1], size, zero)


def _of_plane(nest: LoopNest, lane: LoopSpec, size: int, zero: int) -> LoopNest:
    """The nest with its lanes along the pixels of a plane that has the zero point around it."""
    assert nest.data is not None
    columns = nest.window.frame_width if nest.window else lane.extent
    rows = -(-lane.extent // columns)
    plane = Plane(rows, columns, columns, columns * size, dilation_y=rows, pad_value=zero)
    moved = {name: stride for name, stride in nest.data.strides.items() if name != lane.name}
    return replace(nest, loops=(*nest.loops, _BELOW), data=replace(nest.data, strides=moved), plane=plane)
