"""Looks on while a program runs and compares what it does, job by job, with what it is meant to do.

Two things are found out at once.  Every result is put together from the tiles as they are made, so that afterwards each
layer can be held against its own operator on the inputs that it really had (``program_check``).  And every operand is
compared with what was made, the moment it is read: a tile that is not what its tensor holds was loaded wrongly, stored
wrongly, or overwritten.  What is wrong through no fault of the reading layer's arithmetic is remembered with the call,
so that nobody blames its task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.intent import Alignment, Intent
from torq_byoc.accuracy.tile_values import Assembled, bits, boxed, element_addresses, elements_at
from torq_byoc.codegen.build import needed_granules
from torq_byoc.codegen.hl import Invocation, Load, PlacedConstant, PlacedOperand, SliceRun, Store
from torq_byoc.kernels.graph import Node
from torq_byoc.kernels.kernel import PackedConstant, Region, kernel_for
from torq_byoc.kernels.movement import intersection
from torq_byoc.kernels.portion import region_of
from torq_byoc.npu_model.isa import DmaDescriptor, Start, StartDma, StartSlice
from torq_byoc.npu_model.simulator import Memory

NOBODY = -1
"""In place of a job's number: nothing has written there."""


@dataclass(frozen=True)
class Finding:
    """Something a job did that it was not meant to do.

    Attributes:
        job: its number in the program.
        node: the operator at fault.
        tensor: what is wrong.
        stage, cause, detail: as ``deviation.Deviation`` has them.
    """

    job: int
    node: str
    tensor: str
    stage: Stage
    cause: str
    detail: str


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
        self.findings: list[Finding] = []
        self.calls: dict[int, CallRecord] = {}
        self.job = NOBODY
        config = intent.program.config
        self._writer = np.full(config.lram_bytes, NOBODY, np.int32)
        self._before = np.empty(config.lram_bytes, np.uint8)
        self._mask = np.zeros(config.lram_bytes, bool)
        self._starts: dict[int, Start] = {}
        self._carried: dict[tuple[str, int], bool] = {}
        self._packed: dict[str, tuple[PackedConstant, ...]] = {}
        self._roots = self.graph.storage_roots()
        self._unstored: set[str] = set()

    def op_of(self, job: int) -> Load | Store | SliceRun | None:
        """The op that a job is meant to be; None for block fetches and jobs that nobody meant."""
        meant = self.alignment.meant[job] if job < len(self.alignment.meant) else None
        return None if meant is None else self.intent.jobs[meant]

    def before(self, job: int, start: Start, memory: Memory) -> None:
        """Compare operands; remember LRAM."""
        self.job, self._starts[job] = job, start
        op = self.op_of(job)
        if isinstance(op, SliceRun):
            np.copyto(self._before, memory.lram)
            self._operands(op, memory)

    def after(self, job: int, start: Start, memory: Memory) -> None:
        """Take results into the whole tensors; note who wrote where."""
        op = self.op_of(job)
        if isinstance(start, StartDma):
            if isinstance(op, Store):
                self._stored(op, memory)
            elif start.descriptor.nbytes:
                self._writer[start.descriptor.lram : start.descriptor.lram + start.descriptor.nbytes] = job
        elif isinstance(op, SliceRun):
            self._ran(op, start, memory)

    # ------------------------------------------------------------------ kernel calls

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
        for constant, place in zip(self._constants(node), op.invocation.constants, strict=True):
            self._constant_operand(op, record, constant, place, memory)
        if portion is not None:
            self._carried[carried] = record.excused

    def _is_overwritten_meanwhile(self, op: SliceRun, which: int) -> bool:
        """Whether an earlier program of the same call may have written where this operand was."""
        return op.tasks[0] > 0 and op.invocation.inputs[which].buffer == op.invocation.output.buffer

    def _tensor_operand(
        self, op: SliceRun, record: CallRecord, node: Node, which: int, position: int, memory: Memory
    ) -> None:
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
        if wrong.any():
            record.excused = True
            self._blame_operand(op, tensor, operand, places[wrong], memory)

    def _constants(self, node: Node) -> tuple[PackedConstant, ...]:
        if node.name not in self._packed:
            config = self.intent.program.config
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
            self._blame_constant(op, constant, place, differing, memory)

    def _ran(self, op: SliceRun, start: StartSlice, memory: Memory) -> None:
        record = self._record(op)
        record.runs.append((op, memory.lram[start.address : start.address + start.size].tobytes()))
        output, call = op.invocation.output, op.invocation
        changed = np.flatnonzero(memory.lram != self._before)
        places = None
        if output.buffer >= 0:
            dtype = self.graph.tensors[self.intent.nodes[op.node].output].dtype.numpy
            places = element_addresses(output.at(self.intent.address), call.region)
            spread = (places[..., None] + np.arange(dtype.itemsize)).reshape(-1)
            spread = spread[(spread >= 0) & (spread < self._mask.size)]
            self._mask[spread] = True
            stray = changed[~self._mask[changed]]
            self._writer[spread] = self.job
            self._mask[spread] = False
        else:
            stray = changed
        if stray.size:
            record.excused = record.excused or not places_intact(stray, places)
            self._strayed(op, stray)
        if self.intent.last_run[id(call)] == self.alignment.meant[self.job]:
            record.completed = self.job
            if places is not None:
                tensor = self.intent.nodes[op.node].output
                self.made.put(tensor, call.region, elements_at(memory.lram, places, dtype))

    def _strayed(self, op: SliceRun, stray: np.ndarray) -> None:
        """A task wrote where it should not."""
        self._writer[stray] = self.job
        self._find(
            op.node,
            self.intent.nodes[op.node].output,
            Stage.TILING,
            "writes outside its tile",
            f"{stray.size} bytes of LRAM from {int(stray[0])} on are not part of the region that it computes",
        )

    # ------------------------------------------------------------------ transfers

    def _stored(self, op: Store, memory: Memory) -> None:
        """Hold what lies in XRAM after a store against what was made."""
        tensor = op.source.tensor or op.target.tensor
        self.made.complete(tensor)
        wrong = self._differs_in_xram(op, tensor, memory)
        if wrong is None:
            return
        self._unstored.add(self._roots[tensor])
        meant = self._descriptor(op)
        actual = self._starts[self.job]
        assert isinstance(actual, StartDma)
        if actual.descriptor != meant:
            cause, detail = "a store of another region", _descriptor_difference(actual.descriptor, meant)
        else:
            writers = np.unique(self._writer[meant.lram : meant.lram + meant.nbytes])
            if any(finding.job in writers for finding in self.findings):
                return
            cause = "overwritten before it was stored"
            detail = f"the tile of {tensor} in LRAM is no longer what was computed"
        self._find(op.node, tensor, Stage.TILING, cause, detail)

    def _differs_in_xram(self, op: Load | Store, tensor: str, memory: Memory) -> np.ndarray | None:
        """Bytes of a tensor's image, of those that an op is meant to move, that are not in XRAM; None when all are."""
        root = self._roots[tensor]
        positions = _walked(op.transfer.xram_offset, op.transfer.run, op.transfer.dims)
        values, known = self.made.values[root], self.made.known[root]
        image = np.ascontiguousarray(values).reshape(-1).view(np.uint8)[positions]
        sure = known.reshape(-1)[positions // values.itemsize]
        base = self.intent.address[(op.source if isinstance(op, Load) else op.target).buffer]
        first, last = int(positions.min()), int(positions.max())
        found = memory.image(base + first, last + 1 - first)[positions - first]
        wrong = positions[sure & (found != image)]
        return wrong if wrong.size else None

    def _descriptor(self, op: Load | Store) -> DmaDescriptor:
        """The transfer that an op is meant to be."""
        lram, xram = (op.target, op.source) if isinstance(op, Load) else (op.source, op.target)
        address = self.intent.address
        return DmaDescriptor(
            address[lram.buffer] + op.transfer.lram_offset,
            address[xram.buffer] + op.transfer.xram_offset,
            op.transfer.run,
            op.transfer.dims,
        )

    # ------------------------------------------------------------------ whose fault it is

    def _blame_operand(
        self, op: SliceRun, tensor: str, operand: PlacedOperand, places: np.ndarray, memory: Memory
    ) -> None:
        """Find out why a tile is not what its tensor holds."""
        writer = int(self._writer[np.clip(places.reshape(-1)[0], 0, self._writer.size - 1)])
        if any(finding.job == writer for finding in self.findings):
            return
        load = self.op_of(writer) if writer != NOBODY else None
        if self._absent_load(operand.buffer):
            cause, detail = "a load is left out", f"nothing loads {tensor} for the tile, which holds what was there"
        elif isinstance(load, Load):
            start, meant = self._starts[writer], self._descriptor(load)
            assert isinstance(start, StartDma)
            if start.descriptor != meant:
                self._find(load.node, tensor, Stage.TILING, *_wrong_load(start.descriptor, meant, tensor), job=writer)
                return
            if load.target.buffer == operand.buffer:
                self._blame_source(op, load, tensor, memory)
                return
            cause, detail = "a stale buffer", f"the tile of {tensor} still holds what an earlier load left there"
        else:
            cause, detail = "a stale buffer", f"the tile of {tensor} holds what another layer left there"
        self._find(op.node, tensor, Stage.TILING, cause, detail)

    def _blame_source(self, op: SliceRun, load: Load, tensor: str, memory: Memory) -> None:
        """A load did what it should: what it loaded was wrong."""
        root = self._roots[tensor]
        if root in self._unstored:
            return
        if self._differs_in_xram(load, tensor, memory) is None:
            where = f"{tensor} was loaded before it was stored"
            self._find(op.node, tensor, Stage.TILING, "a load that comes too early", where)
            return
        self._unstored.add(root)
        producer = next((node.name for node in self.graph.nodes if node.output == root), op.node)
        detail = f"{root} in XRAM is not what was computed"
        self._find(producer, root, Stage.TILING, "a result that is not stored", detail)

    def _blame_constant(
        self, op: SliceRun, constant: PackedConstant, place: PlacedConstant, places: np.ndarray, memory: Memory
    ) -> None:
        writer = int(self._writer[places[0]])
        if any(finding.job == writer and finding.node == op.node for finding in self.findings):
            return
        load = self.op_of(writer) if writer != NOBODY else None
        what = f"{constant.name} of {op.node}"
        if isinstance(load, Load) and load.target.buffer == place.buffer:
            start, meant = self._starts[writer], self._descriptor(load)
            assert isinstance(start, StartDma)
            if start.descriptor == meant:
                detail = f"{places.size} bytes of {what} are not those that its operator was packed into"
                self._find(op.node, constant.name, Stage.CODE_GENERATION, f"wrong {constant.name}", detail, job=writer)
                return
            self._find(load.node, constant.name, Stage.TILING, *_wrong_load(start.descriptor, meant, what), job=writer)
            return
        if self._absent_load(place.buffer):
            cause, detail = "a load is left out", f"nothing loads {what}, its buffer holds what was there"
        else:
            cause, detail = "a stale buffer", f"the buffer of {what} holds something else"
        self._find(op.node, constant.name, Stage.TILING, cause, detail)

    def _absent_load(self, buffer: int) -> bool:
        """Whether a load into a buffer was meant that the program does not have."""
        ops = (self.intent.jobs[job] for job in self.alignment.absent)
        return any(isinstance(op, Load) and op.target.buffer == buffer for op in ops)

    def _find(self, node: str, tensor: str, stage: Stage, cause: str, detail: str, *, job: int | None = None) -> None:
        self.findings.append(Finding(self.job if job is None else job, node, tensor, stage, cause, detail))

    def excused_regions(self, node: str) -> Iterator[Region]:
        """Regions of a node's result that calls computed from operands that were not right."""
        for record in self.calls.values():
            if record.excused and record.invocation.node == node:
                yield record.invocation.region


def places_intact(stray: np.ndarray, places: np.ndarray | None) -> bool:
    """Whether bytes written astray leave the places of a result alone."""
    return places is None or not np.isin(stray, places).any()


def _piece(constant: PackedConstant, call: Invocation) -> np.ndarray:
    """The granules of a constant, or of each the pieces of a call's portion."""
    if call.portion is None or constant.pieces == 1:
        return constant.data
    piece = constant.data.shape[1] // constant.pieces
    first = call.portion.box.start[0] * piece
    return constant.data[:, first : first + call.portion.box.extent[0] * piece]


def _walked(offset: int, run: int, dims: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Byte positions of a transfer's XRAM side, in transfer order."""
    positions = np.arange(run, dtype=np.int64)
    for count, stride in reversed(dims):
        positions = (np.arange(count, dtype=np.int64)[:, None] * stride + positions[None, :]).reshape(-1)
    return positions + offset


def _wrong_load(actual: DmaDescriptor, meant: DmaDescriptor, what: str) -> tuple[str, str]:
    place = "place" if actual.lram != meant.lram else "region"
    return f"a load of another {place}", f"the load of {what}: {_descriptor_difference(actual, meant)}"


def _descriptor_difference(actual: DmaDescriptor, meant: DmaDescriptor) -> str:
    fields = ("lram", "xram", "run", "dims")
    pairs = ((name, getattr(actual, name), getattr(meant, name)) for name in fields)
    return ", ".join(f"{name} {found} where {wanted} is meant" for name, found, wanted in pairs if found != wanted)
