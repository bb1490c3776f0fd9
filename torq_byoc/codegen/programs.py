"""Kernel calls as slice programs: what passes have settled is cut into programs, each loaded before it runs.

Before::

    load x -> a     call node, slice 0 (a -> b)     call node, slice 1 (a -> b)     store b -> y

After::

    load x -> a     load p -> c     run tasks 0..7 of slice 0, of slice 1 (a -> b, c)     store b -> y

The programs of all slices lie behind each other in one buffer.  A call too long for its slot becomes several programs,
each a step of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
from msgspec.structs import replace

from torq_byoc.codegen.call_forms import call_form, call_shape, first_elements, is_dense, node_kinds
from torq_byoc.codegen.chunks import Chunk, program_chunks
from torq_byoc.codegen.hl import (
    READ,
    UNLIKE,
    WRITE,
    Access,
    Addresses,
    Buffer,
    BufferKind,
    CallProgram,
    Invocation,
    Load,
    Op,
    PlacedConstant,
    PlacedOperand,
    RunProgram,
    SliceCall,
    SliceRun,
    Space,
    Transfer,
)
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.limits import TaskChecks
from torq_byoc.kernels.portion import tasks_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.timing import dma_cycles


def invocation_tasks(
    graph: OpGraph, node: Node, config: NpuConfig, invocation: Invocation, addresses: Addresses
) -> list[SliceTask]:
    """The slice tasks of one kernel call; ``addresses`` gives every buffer's LRAM byte address."""
    return tasks_of(
        kernel_for(node.op),
        graph,
        node,
        config.using(invocation.slices),
        invocation.region,
        invocation.portion,
        invocation.output.at(addresses),
        [operand.at(addresses) for operand in invocation.inputs],
        [constant.at(addresses) for constant in invocation.constants],
    )


def with_programs(program: CallProgram, graph: OpGraph, config: NpuConfig) -> RunProgram:
    """Replace every kernel call by runs of its programs, and number the steps anew.

    Raises:
        KernelError: a task exceeds what a slice can do.
    """
    return _Cutter(program, graph, config).run()


class _Part(msgspec.Struct, frozen=True, gc=False):
    """One program of a call of some form (``SliceRun.form``)."""

    call: SliceCall
    chunk: Chunk
    form: int


class _Cutter:
    def __init__(self, program: CallProgram, graph: OpGraph, config: NpuConfig) -> None:
        self.program, self.graph, self.config = program, graph, config
        self.nodes = {node.name: node for node in graph.nodes}
        self.buffers = list(program.buffers)
        self.ops: list[Op] = []
        self.checks = TaskChecks(config)
        self.kinds = node_kinds(graph)
        self.forms: dict[Hashable, tuple[int, list[Chunk]]] = {}
        """Number and programs of the calls of every form."""
        self.calls: dict[int, list[SliceCall]] = {}
        for op in program.ops:
            if type(op) is SliceCall:
                self.calls.setdefault(op.step, []).append(op)
        self.parts = {step: self._parts(calls) for step, calls in self.calls.items()}
        self.first = self._numbered()

    def run(self) -> RunProgram:
        """Loads keep to the first program of their step, stores to its last."""
        for op in self.program.ops:
            if type(op) is SliceCall:
                if op is self.calls[op.step][0]:
                    self._programs(op.step)
            else:
                last = 0 if type(op) is Load else len(self.parts.get(op.step, ())) - 1
                step = self.first[op.step] + max(last, 0)
                self.ops.append(op if step == op.step else replace(op, step=step))
        return RunProgram(tuple(self.buffers), tuple(self.ops), self.program.tensors)

    def _numbered(self) -> dict[int, int]:
        """First new step of every old one; what is left of a step without calls joins the step before."""
        first, following = {}, 0
        for step in sorted({op.step for op in self.program.ops}):
            count = len(self.parts.get(step, ()))
            first[step] = following if count else max(following - 1, 0)
            following += count
        return first

    def _parts(self, calls: Sequence[SliceCall]) -> list[list[_Part]]:
        """The programs of one step: those that run side by side, one after the other."""
        cut = [self._parts_of(call) for call in calls]
        most = max(map(len, cut))
        if most == 1:
            return [[part for own in cut for part in own]]
        return [[own[position] for own in cut if position < len(own)] for position in range(most)]

    def _parts_of(self, call: SliceCall) -> list[_Part]:
        """Those of a call; calls that are alike, of nodes that are alike, are cut once."""
        node, invocation = self.nodes[call.node], call.invocation
        form = self._form(node, invocation)
        if form is None:
            return [_Part(call, chunk, UNLIKE) for chunk in self._cut(node, invocation)]
        key = (self.kinds[node.name], form)
        known = self.forms.get(key)
        if known is None:
            known = self.forms[key] = (len(self.forms), self._cut(node, invocation))
        number, chunks = known
        return [_Part(call, chunk, number) for chunk in chunks]

    def _form(self, node: Node, invocation: Invocation) -> Hashable | None:
        """What the sizes and cycles of a call's tasks depend on, beside the kind of node; None if on everything."""
        kernel = kernel_for(node.op)
        if not is_dense(invocation):
            return None
        if kernel.translates:
            return call_shape(invocation)
        if kernel.moves:
            first = first_elements(invocation, self._apart(invocation))
            return call_form(invocation, first)
        return None

    def _cut(self, node: Node, invocation: Invocation) -> list[Chunk]:
        tasks = invocation_tasks(self.graph, node, self.config, invocation, self._apart(invocation))
        self.checks.check(tasks)
        return program_chunks(tasks, self.config.slice_program_bytes)

    def _apart(self, invocation: Invocation) -> dict[int, int]:
        """Addresses for the buffers of a kernel call, one behind the other.

        Sizes and cycles do not depend on them as long as operands do not overlap that will not.
        """
        addresses: dict[int, int] = {}
        cursor = 0
        placed: tuple[PlacedOperand | PlacedConstant, ...] = (
            invocation.output,
            *invocation.inputs,
            *invocation.constants,
        )
        for buffer in (operand.buffer for operand in placed):
            if buffer >= 0 and buffer not in addresses:
                addresses[buffer] = cursor
                cursor += -(-self.buffers[buffer].nbytes // self.config.lram_word) * self.config.lram_word
        return addresses

    def _programs(self, old: int) -> None:
        for position, parts in enumerate(self.parts[old]):
            self._side_by_side(self.first[old] + position, parts)

    def _side_by_side(self, step: int, parts: Sequence[_Part]) -> None:
        call = parts[0].call
        total = sum(part.chunk.nbytes for part in parts)
        image, program = self._buffer(call.node, Space.XRAM, total), self._buffer(call.node, Space.LRAM, total)
        self.ops.append(
            Load(
                call.node,
                call.tile,
                step,
                call.band,
                Access(image, READ),
                Access(program, WRITE),
                Transfer(0, 0, total),
                dma_cycles(total, self.config),
            )
        )
        offset, executed = 0, Access(program, READ)
        for part in parts:
            chunk, own = part.chunk, part.call
            self.ops.append(
                SliceRun(
                    own.node,
                    step,
                    own.slice_index,
                    own.invocation,
                    chunk.tasks,
                    program,
                    offset,
                    chunk.nbytes,
                    (*own.accesses, executed),
                    chunk.cycles,
                    part.form,
                )
            )
            offset += chunk.nbytes

    def _buffer(self, node: str, space: Space, nbytes: int) -> int:
        self.buffers.append(Buffer(len(self.buffers), f"{node}/program", space, nbytes, BufferKind.PROGRAM))
        return len(self.buffers) - 1
