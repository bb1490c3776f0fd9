"""Slice programs as bytes: of kernel calls that are alike but for places, one is lowered, the others are copies of it.

The tiles of a node, and of nodes of one kind, ask for the same loop nests elsewhere.  What kernels say of themselves
(``Kernel.moves``) tells which calls these are; their programs differ in the base addresses of descriptors alone, and
each of these lies as far from the first element of its operand as in the call that was lowered.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.call_forms import call_distances, first_elements, operand_buffers
from torq_byoc.codegen.hl import UNLIKE, Invocation, RunProgram, SliceRun
from torq_byoc.codegen.programs import invocation_tasks
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import base_fields, encode_slice_program, put_base


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
            put_base(image, offset, base + first[operand] - self.first[operand])
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
        if not kernel.moves or run.form == UNLIKE:
            return self._encoded(run, addresses)
        first = first_elements(call, addresses)
        key = (run.form, run.tasks, call_distances(call, first, by_distance=not kernel.translates))
        if key not in self._known:
            data = self._encoded(run, addresses)
            self._known[key] = self._remembered(data, call, first, addresses)
            return data
        known = self._known[key]
        return self._encoded(run, addresses) if known is None else known.moved(first)

    def without_places(self, run: SliceRun) -> bytes:
        """The bytes that its slice program has but for the places of its operands: as if all buffers lay at 0."""
        return self._encoded(run, [0] * len(self.nbytes))

    def _encoded(self, run: SliceRun, addresses: Sequence[int]) -> bytes:
        tasks = invocation_tasks(self.graph, self.nodes[run.node], self.config, run.invocation, addresses)
        return encode_slice_program(tasks[slice(*run.tasks)])

    def _remembered(
        self, data: bytes, call: Invocation, first: tuple[int, ...], addresses: Sequence[int]
    ) -> _Image | None:
        """A program with what its bases belong to; None where a base does not lie in just one of the buffers."""
        owners: dict[int, int] = {}
        for index, buffer in enumerate(operand_buffers(call)):
            if buffer >= 0:
                owners.setdefault(buffer, index)
        bases = []
        for offset, base in base_fields(data):
            around = [b for b in owners if 0 <= base - addresses[b] < self.nbytes[b]]
            if len(around) != 1:
                return None
            bases.append((offset, base, owners[around[0]]))
        return _Image(data, tuple(bases), first)
