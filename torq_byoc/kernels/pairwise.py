"""Folding two tensors into one: a reduce loop of two steps whose D stride leads from one operand to the other.

Both operands therefore walk the same strides in every other loop.  Where they do not (a broadcast operand,
or tiles cut from buffers of different pitch), one of them is first copied into the output's place, which has
an element for every index, and the fold runs in place; axes on which the strides still differ become one
task an index.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from torq_byoc.kernels.copies import copy_task
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, cheapest
from torq_byoc.kernels.elementwise import ElementwiseKernel, broadcast_axes, input_types, product_of
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.result_boxes import ResultBox
from torq_byoc.kernels.views import View, broadcast_strides, collapse, total_cost, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Role, SliceTask

MAX_SPLIT = 8
"""Tasks that one tile may be split into where operand strides differ; ways with more are not tried if one has fewer."""

_REDUCE, _TAP = "r", "tap"


@dataclass(frozen=True)
class PairFold:
    """What ALU and ACT do to the two operands.

    Attributes:
        weights: where the weights lie after the first one, or None when the ALU takes D as it is.
        vector: lanes a cycle; 0 for the widest.
    """

    alu: AluConfig
    act: ActConfig
    weights: WeightSteps | None = None
    vector: int = 0

    @property
    def taps(self) -> int:
        """Weights of each operand."""
        return self.weights.taps if self.weights else 1


@dataclass(frozen=True)
class WeightSteps:
    """Bytes from the weight of one operand to that of the other, and from tap to tap.

    With several ``taps`` an operand is multiplied that many times: its weight is the sum of theirs.
    """

    operand: int
    tap: int = 0
    taps: int = 1

    def strides(self) -> dict[str, int]:
        """Of the W operand over the reduce loops."""
        return {_REDUCE: self.operand, _TAP: self.tap}


class PairKernel(ElementwiseKernel):
    """An element-wise kernel of two tensors that share the D bus: how far one lies from the other is a stride of it."""

    translates = False

    def needs_broadcast(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """Positions of inputs that a ``broadcast`` node should first bring to the output's shape."""
        shape = graph.tensors[node.output].shape
        first, second = (
            View(0, info.dtype, broadcast_strides(info.shape, info.dtype.size, len(shape)))
            for info in (graph.tensors[name] for name in node.inputs)
        )
        if product_of(shape, _unlike_axes(first, second, shape)) <= MAX_SPLIT:
            return ()
        repeated = [broadcast_axes(graph, node, position) for position in (0, 1)]
        positions = tuple(position for position in (0, 1) if repeated[position])
        in_place = graph.tensors[node.output].dtype.size == input_types(graph, node)[0].size
        return positions[1:] if in_place else positions


def needs_broadcast(graph: OpGraph, node: Node) -> tuple[int, ...]:
    """Positions of a node's inputs that must be materialised by explicit ``broadcast`` nodes; often none."""
    kernel = kernel_for(node.op)
    return kernel.needs_broadcast(graph, node) if isinstance(kernel, PairKernel) else ()


def pair_tasks(fold: PairFold, box: ResultBox, config: NpuConfig) -> list[SliceTask]:
    """The cheapest tasks that fold the two operands of a box."""
    ways, extent = list(_ways(box)), box.extent
    counts = [product_of(extent, _unlike_axes(way.first, way.second, extent)) for way in ways]
    if counts[0] == 1:
        return _split(fold, ways[0], box, config)
    few = max(min(counts), MAX_SPLIT)
    options = [
        [*way.copies(extent, config), *_split(fold, way, box, config)]
        for way, count in zip(ways, counts, strict=True)
        if count <= few
    ]
    return min(options, key=lambda tasks: total_cost(tasks, config))


def fold_boxes(fold: PairFold, boxes: Sequence[ResultBox], config: NpuConfig) -> list[SliceTask]:
    """``pair_tasks`` of all boxes of a result."""
    return [task for box in boxes for task in pair_tasks(fold, box, config)]


class _Way(msgspec.Struct, frozen=True, gc=False):
    """The output, the views that are folded, and the operand to copy into the output's place before."""

    out: View
    first: View
    second: View
    copied: View | None = None

    def copies(self, extent: Sequence[int], config: NpuConfig) -> list[SliceTask]:
        """The copy, if there is one."""
        if self.copied is None:
            return []
        return [copy_task(self.copied, replace(self.out, dtype=self.copied.dtype), extent, config)]


def _ways(box: ResultBox) -> Iterator[_Way]:
    """Fold where the operands lie, or with one of them copied where the output goes."""
    out, (first, second) = box.target, box.operands
    yield _Way(out, first, second)
    if out.dtype.size == first.dtype.size and out.window is None:
        there = replace(out, dtype=first.dtype)
        yield _Way(out, first, there, second)
        yield _Way(out, there, second, first)


def _unlike_axes(a: View, b: View, extent: Sequence[int]) -> list[int]:
    """Axes along which two views do not walk alike."""
    return [axis for axis, size in enumerate(extent) if size > 1 and a.strides[axis] != b.strides[axis]]


def _split(fold: PairFold, way: _Way, box: ResultBox, config: NpuConfig) -> list[SliceTask]:
    """One task for every index of the axes on which the folded views walk differently."""
    unlike = _unlike_axes(way.first, way.second, box.extent)
    inner = tuple(1 if axis in unlike else size for axis, size in enumerate(box.extent))
    tasks = []
    for index in itertools.product(*(range(size if axis in unlike else 1) for axis, size in enumerate(box.extent))):
        out, first, second = (operand.shifted(index) for operand in (way.out, way.first, way.second))
        bias, weight = (entries and entries.shifted(index) for entries in (box.bias, box.weight))
        tasks.append(_fold_task(fold, ResultBox(inner, out, (first, second), bias, weight), config))
    return tasks


def _fold_task(fold: PairFold, box: ResultBox, config: NpuConfig) -> SliceTask:
    """One task; the operands have equal strides on every axis longer than 1."""
    first, second = box.operands
    present = {"out": box.target, "data": first, "bias": box.bias, "weight": box.weight}
    names = [name for name, operand in present.items() if operand is not None]
    extents, collapsed = collapse(box.extent, [operand for operand in present.values() if operand is not None])
    views = dict(zip(names, collapsed, strict=True))
    step = {_REDUCE: second.address - first.address}

    def nests() -> Iterator[LoopNest]:
        for walk in walks(extents, box.target):
            yield LoopNest(
                (*walk.loops, LoopSpec(_REDUCE, 2, Role.REDUCE), LoopSpec(_TAP, fold.taps, Role.REDUCE)),
                walk.operand(views["out"]),
                walk.operand(views["data"], step),
                walk.operand(views["weight"], fold.weights.strides()) if fold.weights else None,
                walk.operand(views["bias"]) if box.bias else None,
                fold.alu,
                fold.act,
                window=box.target.window,
                vector=min(filter(None, (walk.vector, fold.vector)), default=0),
            )

    return cheapest(nests(), config)
