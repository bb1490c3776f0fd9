"""Slice programs as bytes: of kernel calls that are alike but for places, one is lowered, the others are copies of it.

The tiles of a node ask for the same loop nests elsewhere.  What kernels say of themselves (``Kernel.moves``) tells
which calls these are; their programs differ in the base addresses of descriptors alone, and each of these lies as far
from the first element of its operand as in the call that was lowered.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.hl import Invocation, PlacedOperand, RunProgram, SliceRun
from torq_byoc.codegen.programs import invocation_tasks
from torq_byoc.codegen.tile_places import DENSE
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Kernel, kernel_for
from torq_byoc.kernels.portion import region_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import base_fields, encode_slice_program

_BASE = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class _Image:
    """An encoded program.

    Attributes:
        data: its bytes.
        bases: byte offset and value of every base address, and which operand it belongs to.
        first: where the first elements of the operands lie.
    """

    data: bytes
    bases: tuple[tuple[int, int, int], ...]
    first: tuple[int, ...]

    def moved(self, first: Sequence[int]) -> bytes:
        """The program for operands elsewhere."""
        image = bytearray(self.data)
        for offset, base, operand in self.bases:
            _BASE.pack_into(image, offset, base + first[operand] - self.first[operand])
        return bytes(image)


class CallImages:
    """Encodes the slice programs of one torq_hl program, in whichever order and wherever its buffers lie.

    Args:
        program: torq_hl.
        graph, config: what it was made of and for.
    """

    def __init__(self, program: RunProgram, graph: OpGraph, config: NpuConfig) -> None:
        self.graph, self.config = graph, config
        self.nbytes = [buffer.nbytes for buffer in program.buffers]
        self.nodes = {node.name: node for node in graph.nodes}
        self._known: dict[Hashable, _Image | None] = {}

    def image(self, run: SliceRun, addresses: Sequence[int]) -> bytes:
        """The bytes of one slice program, given the LRAM byte address of every buffer."""
        node, call = self.nodes[run.node], run.invocation
        kernel = kernel_for(node.op)
        if not kernel.moves or any([operand.phases != DENSE for operand in (call.output, *call.inputs)]):
            return self._encoded(run, addresses)
        first = self._first_elements(kernel, node, call, addresses)
        key = (run.node, run.tasks, _form(call, first, by_distance=not kernel.translates))
        if key not in self._known:
            data = self._encoded(run, addresses)
            self._known[key] = self._remembered(data, call, first, addresses)
            return data
        known = self._known[key]
        return self._encoded(run, addresses) if known is None else known.moved(first)

    def _encoded(self, run: SliceRun, addresses: Sequence[int]) -> bytes:
        tasks = invocation_tasks(self.graph, self.nodes[run.node], self.config, run.invocation, addresses)
        return encode_slice_program(tasks[slice(*run.tasks)])

    def _first_elements(
        self, kernel: Kernel, node: Node, call: Invocation, addresses: Sequence[int]
    ) -> tuple[int, ...]:
        """Addresses of the first elements that a call needs of its operands: result, tensors, constants."""
        found = [_element(call.output, call.region.start, addresses)]
        positions = kernel.tensor_inputs(self.graph, node)
        for position, operand in zip(positions, call.inputs, strict=True):
            needed = region_of(kernel, self.graph, node, position, call.region, call.portion)
            found.append(_element(operand, needed.start, addresses))
        for constant, granule in zip(call.constants, call.granules, strict=True):
            found.append(addresses[constant.buffer] + (granule - constant.first) * constant.granule_bytes)
        return tuple(found)

    def _remembered(
        self, data: bytes, call: Invocation, first: tuple[int, ...], addresses: Sequence[int]
    ) -> _Image | None:
        """A program with what its bases belong to; None where a base does not lie in just one of the buffers."""
        owners: dict[int, int] = {}
        for index, buffer in enumerate(_buffers(call)):
            if buffer >= 0:
                owners.setdefault(buffer, index)
        bases = []
        for offset, base in base_fields(data):
            around = [b for b in owners if 0 <= base - addresses[b] < self.nbytes[b]]
            if len(around) != 1:
                return None
            bases.append((offset, base, owners[around[0]]))
        return _Image(data, tuple(bases), first)


def _element(operand: PlacedOperand, index: Sequence[int], addresses: Sequence[int]) -> int:
    """Address of an element of a dense operand; 0 where that is left out."""
    if operand.buffer < 0:
        return 0
    address = addresses[operand.buffer] + operand.offset
    for at, start, stride in zip(index, operand.region.start, operand.strides, strict=True):
        address += (at - start) * stride
    return address


def _buffers(call: Invocation) -> list[int]:
    tensors = (call.output, *call.inputs)
    return [*(operand.buffer for operand in tensors), *(constant.buffer for constant in call.constants)]


def _form(call: Invocation, first: Sequence[int], *, by_distance: bool) -> Hashable:
    """What the programs of two calls of a node must agree in to be copies of one another.

    That is how operands are walked, and which of them share a buffer at what distance; with ``by_distance`` how far the
    tensors lie from the result, whatever their buffers.
    """
    buffers = _buffers(call)
    tensors = (call.output, *call.inputs)
    shared = [buffers.index(buffer) for buffer in buffers]
    distances = [place - first[owner] for place, owner in zip(first, shared, strict=True)]
    if by_distance:
        distances += [place - first[0] for place in first[1 : len(tensors)]]
    walks = tuple([(operand.region.extent, operand.strides, operand.dtype) for operand in tensors])
    granules = tuple([constant.granule_bytes for constant in call.constants])
    portion = call.portion
    kind = None if portion is None else (portion.box.extent, portion.first, portion.last)
    return (call.region.extent, walks, granules, tuple(shared), tuple(distances), kind)
