"""When nodes and kernel calls are alike: equally long and fast, or the same programs but for places.

Kernels say of themselves which calls these are (``Kernel.translates``, ``Kernel.moves``), as long as no operand lies in
stride phases.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from torq_byoc.codegen.hl import Addresses, Invocation, PlacedOperand
from torq_byoc.codegen.tile_places import DENSE
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.schedules.signature import exact_signature


def node_kinds(graph: OpGraph) -> dict[str, int]:
    """A number for every node by its name, the same for those whose programs differ in places alone: the layers of a
    network that repeats one.  Tables are part of a program, so their entries count as well."""
    numbers: dict[Hashable, int] = {}
    kinds = {}
    for node in graph.nodes:
        arrays = [value.tobytes() for _, value in sorted(node.attrs.items()) if isinstance(value, np.ndarray)]
        kinds[node.name] = numbers.setdefault((exact_signature(graph, node), *arrays), len(numbers))
    return kinds


def is_dense(call: Invocation) -> bool:
    """Whether no operand of a call lies in stride phases."""
    return all([operand.phases == DENSE for operand in (call.output, *call.inputs)])


def operand_buffers(call: Invocation) -> list[int]:
    """Buffers of result, tensors and constants, in this order; -1 for operands that are left out."""
    tensors = [operand.buffer for operand in (call.output, *call.inputs)]
    return tensors + [constant.buffer for constant in call.constants]


def call_shape(invocation: Invocation) -> Hashable:
    """What the size and the cycles of a dense call depend on where its kernel ``translates``.

    That is extents and strides of the operands, and how those that share a buffer lie to one another.
    """
    placed = (invocation.output, *invocation.inputs)
    buffers = [operand.buffer for operand in placed]
    places: list[Hashable] = [operand.offset for operand in placed]
    if len(set(buffers)) < len(buffers):
        places = [
            (buffers.index(operand.buffer), _distance(operand, invocation) if count > 1 else operand.offset)
            for operand, count in zip(placed, map(buffers.count, buffers), strict=True)
        ]
    constants = tuple([(constant.count, constant.granule_bytes) for constant in invocation.constants])
    return (invocation.region.extent, _walks(placed), tuple(places), constants, _portion_kind(invocation))


def _walks(tensors: Sequence[PlacedOperand]) -> Hashable:
    return tuple([(operand.region.extent, operand.strides, operand.dtype) for operand in tensors])


def _portion_kind(call: Invocation) -> Hashable:
    portion = call.portion
    return None if portion is None else (portion.box.extent, portion.first, portion.last)


def _distance(operand: PlacedOperand, invocation: Invocation) -> tuple[int, ...]:
    """Where in its buffer an operand begins, and from where on it is there, counted from the start of the call's region
    (where both have the same axes)."""
    own, part = operand.region.start, invocation.region.start
    start = tuple(a - b for a, b in zip(own, part, strict=True)) if len(own) == len(part) else own + part
    return (operand.offset, *start)


def first_elements(call: Invocation, addresses: Addresses) -> tuple[int, ...]:
    """Addresses of the first elements that a dense call needs of its result, tensors and constants."""
    found = [_element(call.output, call.region.start, addresses)]
    for operand, first in zip(call.inputs, call.first, strict=True):
        found.append(_element(operand, first, addresses))
    for constant, granule in zip(call.constants, call.granules, strict=True):
        found.append(addresses[constant.buffer] + (granule - constant.first) * constant.granule_bytes)
    return tuple(found)


def _element(operand: PlacedOperand, index: Sequence[int], addresses: Addresses) -> int:
    """Address of an element of a dense operand; 0 where that is left out."""
    if operand.buffer < 0:
        return 0
    address = addresses[operand.buffer] + operand.offset
    if index == operand.region.start:
        return address
    for at, start, stride in zip(index, operand.region.start, operand.strides, strict=True):
        address += (at - start) * stride
    return address


def call_form(call: Invocation, first: Sequence[int]) -> Hashable:
    """What the sizes and cycles of two calls of nodes of one kind depend on where their kernel ``moves``.

    That is how operands are walked, and how they lie (``call_distances``).

    Args:
        call: a dense one.
        first: its ``first_elements``.
    """
    granules = tuple([constant.granule_bytes for constant in call.constants])
    distances = call_distances(call, first, by_distance=True)
    return (call.region.extent, _walks((call.output, *call.inputs)), granules, distances, _portion_kind(call))


def call_distances(call: Invocation, first: Sequence[int], *, by_distance: bool) -> Hashable:
    """What the programs of two calls of one form (``SliceRun.form``) must agree in to be copies of one another.

    That is which operands share a buffer, at what distance; with ``by_distance`` how far the tensors lie from the
    result, whatever their buffers.

    Args:
        call: a dense one.
        first: its ``first_elements``.
        by_distance: for kernels that do not ``translate``.
    """
    buffers = operand_buffers(call)
    shared: list[int] = []
    distances: list[int] = []
    if len(set(buffers)) < len(buffers):
        shared = [buffers.index(buffer) for buffer in buffers]
        distances = [place - first[owner] for place, owner in zip(first, shared, strict=True)]
    if by_distance:
        distances += [place - first[0] for place in first[1 : 1 + len(call.inputs)]]
    return tuple(shared), tuple(distances)
