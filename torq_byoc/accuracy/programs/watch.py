"""Looks on while a program runs and compares what it does, job by job, with what it is meant to do.

Two things are found out at once.  Every result is put together from the tiles as they are made, so that afterwards each
layer can be held against its own operator on the inputs that it really had (``program_check``).  And every operand is
compared with what was made, the moment it is read: a tile that is not what its tensor holds was loaded wrongly, stored
wrongly, or overwritten.  What is wrong through no fault of the reading layer's arithmetic is remembered with the call,
so that nobody blames its task.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.intent import Alignment, Intent
from torq_byoc.accuracy.programs.ledger import NOBODY, Ledger
from torq_byoc.accuracy.programs.tile_values import (
    Assembled,
    bits,
    boxed,
    element_addresses,
    elements_at,
    kept_elements,
)
from torq_byoc.codegen.build import needed_granules
from torq_byoc.codegen.hl import Invocation, PlacedConstant, SliceRun, Store
from torq_byoc.kernels.graph import Node
from torq_byoc.kernels.kernel import PackedConstant, kernel_for
from torq_byoc.kernels.movement import intersection
from torq_byoc.kernels.portion import region_of
from torq_byoc.npu_model.isa import Start, StartDma, StartSlice
from torq_byoc.npu_model.simulator import Memory


@dataclass
class CallRecord:
    """What became of one kernel call: the programs that ran for it, and whether its operands were right."""

    invocation: Invocation
    runs: list[tuple[SliceRun, bytes]] = field(default_factory=list)
    excused: bool = False
    completed: int = NOBODY


class Watch:
    """An observer of the simulator.

    Args:
        intent: what the program is meant to do.
        alignment: which of the meant jobs each of its jobs is.
        made: the tensors before the program runs; completed in place.
    """

    def __init__(self, intent: Intent, alignment: Alignment, made: Assembled) -> None:
        self.intent, self.alignment, self.made = intent, alignment, made
        self.graph = intent.graph
        self.ledger = Ledger(intent, alignment, made)
        self.calls: dict[int, CallRecord] = {}
        config = intent.program.config
        self._before = np.empty(config.lram_bytes, np.uint8)
        self._mask = np.zeros(config.lram_bytes, bool)
        self._carried: dict[tuple[str, int], bool] = {}
        self._packed: dict[str, tuple[PackedConstant, ...]] = {}

    def before(self, job: int, start: Start, memory: Memory) -> None:
        """Compare operands; remember LRAM."""
        self.ledger.begin(job, start)
        op = self.ledger.op_of(job)
        if isinstance(op, SliceRun):
            np.copyto(self._before, memory.lram)
            self._operands(op, memory)

    def after(self, job: int, start: Start, memory: Memory) -> None:
        """Take results into the whole tensors; note who wrote where."""
        op = self.ledger.op_of(job)
        if isinstance(start, StartDma):
            if isinstance(op, Store):
                self.ledger.stored(op, memory)
            elif start.descriptor.nbytes:
                self.ledger.wrote(slice(start.descriptor.lram, start.descriptor.lram + start.descriptor.nbytes))
        elif isinstance(op, SliceRun):
            self._ran(op, start, memory)

    def _record(self, op: SliceRun) -> CallRecord:
        return self.calls.setdefault(id(op.invocation), CallRecord(op.invocation))

    def _operands(self, op: SliceRun, memory: Memory) -> None:
        """Hold what a call is about to read against what was made."""
        record, node = self._record(op), self.intent.nodes[op.node]
        carried = (op.node, op.slice_index)
        portion = op.invocation.portion
        if portion is not None and not portion.first and self._carried.get(carried, False):
            record.excused = True
        for which, position in enumerate(kernel_for(node.op).tensor_inputs(self.graph, node)):
            if not self._is_overwritten_meanwhile(op, which):
                self._tensor_operand(op, record, node, which, position, memory)
        for constant, place in zip(self._constants(node, op.invocation), op.invocation.constants, strict=True):
            self._constant_operand(op, record, constant, place, memory)
        if portion is not None:
            self._carried[carried] = record.excused

    def _is_overwritten_meanwhile(self, op: SliceRun, which: int) -> bool:
        """Whether an earlier program of the same call may have written where this operand was."""
        return op.tasks[0] > 0 and op.invocation.inputs[which].buffer == op.invocation.output.buffer

    def _tensor_operand(
        self, op: SliceRun, record: CallRecord, node: Node, which: int, position: int, memory: Memory
    ) -> None:
        """Hold what a call reads of a tensor against what was made of it."""
        operand, call = op.invocation.inputs[which], op.invocation
        if operand.buffer < 0:
            return
        tensor, kernel = node.inputs[position], kernel_for(node.op)
        region = region_of(kernel, self.graph, node, position, call.region, call.portion)
        region = intersection(region, operand.region)
        if not region.size:
            return
        if not boxed(self.made.known[tensor], region).all():
            self.made.complete(tensor)
        wanted, known = boxed(self.made.values[tensor], region), boxed(self.made.known[tensor], region)
        places = element_addresses(operand.at(self.intent.address), region)
        wrong = (bits(elements_at(memory.lram, places, wanted.dtype)) != bits(wanted)) | ~known
        wrong &= kept_elements(operand, region)
        if wrong.any():
            record.excused = True
            self.ledger.blame_operand(op, tensor, operand, places[wrong], memory)

    def _constants(self, node: Node, call: Invocation) -> tuple[PackedConstant, ...]:
        """A node's constants, packed as all of its calls ask for."""
        if node.name not in self._packed:
            config = self.intent.program.config.using(call.slices)
            self._packed[node.name] = kernel_for(node.op).constants(self.graph, node, config)
        return self._packed[node.name]

    def _constant_operand(
        self, op: SliceRun, record: CallRecord, constant: PackedConstant, place: PlacedConstant, memory: Memory
    ) -> None:
        """Hold the granules that a call needs against those that the operator was packed into."""
        needed = needed_granules(constant, op.invocation.region)
        data = _piece(constant, op.invocation)
        wanted = data[needed.first : needed.first + needed.count]
        first = self.intent.address[place.buffer] + (needed.first - place.first) * place.granule_bytes
        found = memory.lram[first : first + wanted.size].reshape(-1)
        if found.size == wanted.size and not np.array_equal(found, wanted.reshape(-1)):
            record.excused = True
            differing = first + np.flatnonzero(found != wanted.reshape(-1))
            self.ledger.blame_constant(op, constant, place, differing)

    def _ran(self, op: SliceRun, start: StartSlice, memory: Memory) -> None:
        """Note what a program of a call wrote, and with its last program take its result."""
        record, output, call = self._record(op), op.invocation.output, op.invocation
        record.runs.append((op, memory.lram[start.address : start.address + start.size].tobytes()))
        info = self.graph.tensors[self.intent.nodes[op.node].output]
        places = element_addresses(output.at(self.intent.address), call.region) if output.buffer >= 0 else None
        changed = np.flatnonzero(memory.lram != self._before)
        stray = changed if places is None else self._outside(changed, places, info.dtype.size)
        if stray.size:
            self._strayed(op, stray)
        if self.intent.last_run[id(call)] == self.alignment.meant[self.ledger.job]:
            record.completed = self.ledger.job
            if places is not None:
                self.made.put(info.name, call.region, elements_at(memory.lram, places, info.dtype.numpy))

    def _outside(self, changed: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
        """Of the bytes that changed, those that are not of a result's elements; the others are the present job's."""
        own = (places[..., None] + np.arange(size)).reshape(-1)
        own = own[(own >= 0) & (own < self._mask.size)]
        self._mask[own] = True
        stray = changed[~self._mask[changed]]
        self._mask[own] = False
        self.ledger.wrote(own)
        return stray

    def _strayed(self, op: SliceRun, stray: np.ndarray) -> None:
        """A task wrote where it should not."""
        self.ledger.wrote(stray)
        self.ledger.find(
            op.node,
            self.intent.nodes[op.node].output,
            Stage.TILING,
            "writes outside its tile",
            f"{stray.size} bytes of LRAM from {int(stray[0])} on are not part of the region that it computes",
        )


def _piece(constant: PackedConstant, call: Invocation) -> np.ndarray:
    """The granules of a constant, or of each the pieces of a call's portion."""
    if call.portion is None or constant.pieces == 1:
        return constant.data
    piece = constant.data.shape[1] // constant.pieces
    first = call.portion.box.start[0] * piece
    return constant.data[:, first : first + call.portion.box.extent[0] * piece]
