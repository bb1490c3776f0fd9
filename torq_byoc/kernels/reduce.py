"""Sum, maximum or minimum over any set of axes, and the index of an extremum.

Reduced axes are reduce loops; the lanes go over the kept axis that costs least, which is a contiguous one
wherever one is kept.  When only inner axes are reduced the lanes are gathered, four addresses a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from torq_byoc.kernels.bias_operand import bias_constants, bias_view
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, cheapest
from torq_byoc.kernels.elementwise import input_types
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.portion import CarryingKernel, Portion, alu_config
from torq_byoc.kernels.rescaling import is_identity
from torq_byoc.kernels.results import finish, float_fold_vector, node_act, widen
from torq_byoc.kernels.views import View, collapse, view, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActMode, Op0, Op1, Role, SliceTask

_FOLDS = {"sum": Op1.ACC, "max": Op1.MAX, "min": Op1.MIN, "argmax": Op1.AMAX, "argmin": Op1.AMIN}
_INDEX_KINDS = frozenset({"argmax", "argmin"})


@register
class Reduce(CarryingKernel):
    """``reduce``: y = rescale(fold of x over axes)."""

    op = "reduce"
    translates = True
    moves = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The fold in the machine's accumulator, then the rescale."""
        kind, axes = node.attrs["kind"], _axes(node)
        values = widen(inputs[0])
        if kind in _INDEX_KINDS:
            kept = [axis for axis in range(values.ndim) if axis not in axes]
            rows = values.transpose(*kept, *axes).reshape(*(values.shape[axis] for axis in kept), -1)
            folded = getattr(rows, kind)(axis=-1)
        else:
            folded = getattr(values, kind)(axis=axes)
        return finish(graph, node, folded.reshape(graph.tensors[node.output].shape), input_types(graph, node))

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """A fold that exists for the type, over no more elements than a reduction may have."""
        data, kind = input_types(graph, node)[0], node.attrs["kind"]
        if kind not in _FOLDS:
            return f"there is no reduction {kind!r}"
        if kind == "sum" and data is DType.FP32:
            return f"the ALU does not accumulate {data.value}"
        if kind in _INDEX_KINDS and not is_identity(node.rescale):
            return f"{kind} gives an index, which has no rescale"
        shape = graph.tensors[node.inputs[0]].shape
        length = math.prod(shape[axis] for axis in _axes(node))
        if length > config.limits.max_reduction:
            return f"{length} elements are reduced into one, the limit is {config.limits.max_reduction}"
        return None

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """The only input."""
        del graph, node
        return (0,)

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """The bias/scale entries."""
        del config
        return bias_constants(graph, node, node.rescale, is_float=input_types(graph, node)[0].is_float)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The box along kept axes, everything along reduced ones."""
        return self.portion_region(graph, node, position, output, Region.whole(_reduced(graph, node)))

    def reduction(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """The reduced axes; none for the index of an extremum, whose state is more than the accumulator."""
        del config
        return () if node.attrs["kind"] in _INDEX_KINDS else _reduced(graph, node)

    def carried_boxes(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[tuple[int, ...], ...]:
        """A vector along one of the axes."""
        shape = graph.tensors[node.output].shape
        vector = _widest(graph, node, config) or config.vector_width(input_types(graph, node)[0], None, 1)
        boxes = [tuple(min(vector, n) if a == lane else 1 for a, n in enumerate(shape)) for lane in range(len(shape))]
        return tuple(dict.fromkeys([*reversed(boxes), (1,) * len(shape)]))

    def portion_region(self, graph: OpGraph, node: Node, position: int, output: Region, portion: Region) -> Region:
        """The box along kept axes, the portion along reduced ones."""
        del position
        shape = graph.tensors[node.inputs[0]].shape
        start, extent = [0] * len(shape), list(shape)
        for axis, out_axis in _kept_axes(graph, node):
            start[axis], extent[axis] = output.start[out_axis], output.extent[out_axis]
        for axis, first, size in zip(_axes(node), portion.start, portion.extent, strict=True):
            start[axis], extent[axis] = first, size
        return Region(tuple(start), tuple(extent))

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Anywhere along every axis."""
        del config
        return (1,) * len(graph.tensors[node.output].shape)

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
        """One task with the cheapest lane loop."""
        return self._tasks(graph, node, config, region, None, output, inputs, constants)

    def portion_tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        portion: Portion,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """See ``CarryingKernel.portion_tasks``."""
        return self._tasks(graph, node, config, region, portion, output, inputs, constants)

    def _tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        portion: Portion | None,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        box = portion.box if portion else Region.whole(_reduced(graph, node))
        source = view(inputs[0], self.portion_region(graph, node, 0, region, box).start)
        rows = _kept_view(graph, node, source, len(region.extent))
        bias = bias_view(node.rescale, region, constants, is_float=source.dtype.is_float)
        operands = (view(output, region.start), rows, *([bias] if bias else []))
        extents, views = collapse(region.extent, operands)
        loops, steps = _reduce_loops(node, source, box.extent)
        alu = alu_config(Op0.DBYP, _FOLDS[node.attrs["kind"]], portion)
        act = node_act(node, ActMode.ACT, source.dtype)
        widest = _widest(graph, node, config)

        def nests() -> Iterator[LoopNest]:
            for walk in walks(extents, views[0]):
                yield LoopNest(
                    (*walk.loops, *loops),
                    walk.operand(views[0]),
                    walk.operand(views[1], steps),
                    bias=walk.operand(views[2]) if bias else None,
                    alu=alu,
                    act=act,
                    vector=min(filter(None, (walk.vector, widest)), default=0),
                )

        return [cheapest(nests(), config)]


def _axes(node: Node) -> tuple[int, ...]:
    return tuple(int(axis) for axis in node.attrs["axes"])


def _kept_axes(graph: OpGraph, node: Node) -> list[tuple[int, int]]:
    """Kept axes of the input with the output axis each becomes."""
    rank, axes = len(graph.tensors[node.inputs[0]].shape), _axes(node)
    kept = [axis for axis in range(rank) if axis not in axes]
    if node.attrs.get("keepdims", False):
        return [(axis, axis) for axis in kept]
    return [(axis, position) for position, axis in enumerate(kept)]


def _kept_view(graph: OpGraph, node: Node, source: View, rank: int) -> View:
    """The input over the axes of the output."""
    strides = [0] * rank
    for axis, out_axis in _kept_axes(graph, node):
        strides[out_axis] = source.strides[axis]
    return View(source.address, source.dtype, tuple(strides))


def _reduced(graph: OpGraph, node: Node) -> tuple[int, ...]:
    """Extents of the reduced axes."""
    shape = graph.tensors[node.inputs[0]].shape
    return tuple(shape[axis] for axis in _axes(node))


def _widest(graph: OpGraph, node: Node, config: NpuConfig) -> int:
    """Most lanes of a fold; 0 as many as the type allows."""
    if node.attrs["kind"] == "sum":
        return 0
    return float_fold_vector(node.rescale, input_types(graph, node)[0], config)


def _reduce_loops(node: Node, source: View, extent: Sequence[int]) -> tuple[list[LoopSpec], dict[str, int]]:
    """The reduce loops in row-major order of a box of the reduced axes, and the D strides along them."""
    reduced = View(source.address, source.dtype, tuple(source.strides[axis] for axis in _axes(node)))
    extents, (walked,) = collapse(extent, [reduced])
    loops = [LoopSpec(f"r{index}", size, Role.REDUCE) for index, size in enumerate(extents)]
    return loops, {f"r{index}": stride for index, stride in enumerate(walked.strides)}
