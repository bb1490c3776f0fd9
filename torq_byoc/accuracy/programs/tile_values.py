"""Elements of tiles in memory, and whole tensors put together from the tiles that a program makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.codegen.hl import PlacedOperand
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.kernels.kernel import Placement, Region, kernel_for
from torq_byoc.kernels.movement import intersection, moved
from torq_byoc.npu_model.dtypes import DType

MOST_ULPS = 1
"""Units in the last place by which bf16 results may differ from the reference: only the order of sums is free."""


def element_addresses(place: Placement, region: Region) -> np.ndarray:
    """LRAM byte address of every element of a region, an array of its extent.

    Args:
        place: where a tile lies that covers the region.
        region: part of the tensor.
    """
    rank = len(region.start)
    total = np.full((1,) * rank, place.address, np.int64)
    for axis in range(rank):
        steps = np.arange(region.extent[axis], dtype=np.int64) + (region.start[axis] - place.region.start[axis])
        from_end = rank - axis
        if from_end <= 2 and place.phases != (1, 1):
            phase = place.phases[2 - from_end]
            offsets = steps % phase * place.phase_strides[2 - from_end] + steps // phase * place.strides[axis]
        else:
            offsets = steps * place.strides[axis]
        total = total + offsets.reshape([-1 if other == axis else 1 for other in range(rank)])
    return total


def kept_elements(place: PlacedOperand, region: Region) -> np.ndarray:
    """Which elements of a region are in a tile that covers it: of stride phases maybe the first ones alone.  Booleans
    that broadcast to the region's extent."""
    rank = len(region.start)
    present = np.ones((1,) * rank, bool)
    for axis, phase, kept in zip((rank - 2, rank - 1), place.phases, place.kept, strict=True):
        if kept < phase:
            steps = np.arange(region.extent[axis]) + (region.start[axis] - place.region.start[axis])
            present = present & (steps % phase < kept).reshape([-1 if other == axis else 1 for other in range(rank)])
    return present


def elements_at(memory: np.ndarray, addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The elements of a type whose first bytes lie at these addresses of a memory of bytes; bytes beyond it are 0."""
    spread = addresses[..., None] + np.arange(dtype.itemsize)
    inside = np.clip(spread, 0, memory.size - 1)
    raw = np.where(spread == inside, memory[inside], 0).astype(np.uint8)
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


def boxed(array: np.ndarray, region: Region) -> np.ndarray:
    """A view of a region of a tensor."""
    return array[tuple(slice(start, start + extent) for start, extent in zip(region.start, region.extent, strict=True))]


def bits(values: np.ndarray) -> np.ndarray:
    """The values as unsigned integers: equal bits, equal numbers, whatever NaN thinks of it."""
    return np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def ulps(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance of bf16 numbers in units of the last place; 0 between two NaN."""
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return np.where(both_nan, 0, np.abs(_ordered(found) - _ordered(expected)))


def _ordered(values: np.ndarray) -> np.ndarray:
    numbers = np.ascontiguousarray(values).view(np.int16).astype(np.int32)
    return np.where(numbers < 0, -32768 - numbers, numbers)


def differing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Which elements of a program's result are not those of the reference."""
    if found.dtype == DType.BF16.numpy:
        return ulps(found, expected) > MOST_ULPS
    return bits(found) != bits(expected)


@dataclass(frozen=True, eq=False)
class Assembled:
    """The tensors of a graph as a program makes them, element by element.

    Tensors that are the bytes of another one (``ALIAS_OPS``) share its memory.

    Attributes:
        values: an array for every tensor.
        known: bool arrays: which elements have been made.
        disputed: bool arrays: elements that were made twice, differently.
    """

    graph: OpGraph
    values: Mapping[str, np.ndarray]
    known: Mapping[str, np.ndarray]
    disputed: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, graph: OpGraph, inputs: Mapping[str, np.ndarray]) -> Assembled:
        """Before the program runs: its inputs and constants are known."""
        made = {node.output: node for node in graph.nodes if node.op in ALIAS_OPS}
        given = {**graph.constants, **inputs}
        values: dict[str, np.ndarray] = {}
        known: dict[str, np.ndarray] = {}
        disputed: dict[str, np.ndarray] = {}
        for name, info in graph.tensors.items():
            if name not in made:
                values[name] = np.array(given[name]) if name in given else np.zeros(info.shape, info.dtype.numpy)
                known[name] = np.full(info.shape, name in given)
                disputed[name] = np.zeros(info.shape, bool)
        for node in graph.nodes:
            if node.op in ALIAS_OPS:
                source, info = node.inputs[0], graph.tensors[node.output]
                values[node.output] = _alias(node, values[source], info.shape).view(info.dtype.numpy)
                known[node.output] = _alias(node, known[source], info.shape)
                disputed[node.output] = _alias(node, disputed[source], info.shape)
        return cls(graph, values, known, disputed)

    def put(self, tensor: str, region: Region, found: np.ndarray) -> None:
        """Note a region that was made."""
        values, known = boxed(self.values[tensor], region), boxed(self.known[tensor], region)
        boxed(self.disputed[tensor], region)[known & differing(values, found)] = True
        values[...] = found
        known[...] = True

    def complete(self, tensor: str) -> None:
        """Fill in what a copy never made because its elements lay in their places already."""
        node = self._producer(tensor)
        if node is None or self.known[tensor].all():
            return
        if node.op in ALIAS_OPS:
            self.complete(node.inputs[0])
            return
        kernel = kernel_for(node.op)
        positions = kernel.tensor_inputs(self.graph, node)
        for which, shift in kernel.copied(self.graph, node).items():
            source = node.inputs[positions[which]]
            self.complete(source)
            whole = Region.whole(self.graph.tensors[source].shape)
            target = intersection(moved(whole, shift), Region.whole(self.graph.tensors[tensor].shape))
            if not target.size:
                continue
            origin = moved(target, [-step for step in shift])
            fresh = boxed(self.known[source], origin) & ~boxed(self.known[tensor], target)
            boxed(self.values[tensor], target)[fresh] = boxed(self.values[source], origin)[fresh]
            boxed(self.known[tensor], target)[fresh] = True

    def _producer(self, tensor: str) -> Node | None:
        return next((node for node in self.graph.nodes if node.output == tensor), None)


def _alias(node: Node, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The same elements under another shape, or in another order of axes: a view."""
    return array.transpose(node.attrs["perm"]) if node.op == "reordered" else array.reshape(shape)
