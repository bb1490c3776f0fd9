"""Who wrote what while a program ran, and whose fault it is when something lies where it should not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.intent import Alignment, Intent
from torq_byoc.accuracy.programs.tile_values import Assembled
from torq_byoc.codegen.hl import Load, PlacedConstant, PlacedOperand, SliceRun, Store
from torq_byoc.kernels.kernel import PackedConstant
from torq_byoc.npu_model.isa import DmaDescriptor, Start, StartDma
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


class Ledger:
    """The last job that wrote each byte of LRAM, and what jobs are known to have done wrong.

    Args:
        intent, alignment, made: as ``watch.Watch`` has them.

    Attributes:
        findings: in the order in which they were made.
        job: the one that is done now.
    """

    def __init__(self, intent: Intent, alignment: Alignment, made: Assembled) -> None:
        self._intent, self._alignment, self._made = intent, alignment, made
        self._graph, self._roots = intent.graph, intent.graph.storage_roots()
        self.findings: list[Finding] = []
        self.job = NOBODY
        self._writer = np.full(intent.program.config.lram_bytes, NOBODY, np.int32)
        self._starts: dict[int, Start] = {}
        self._unstored: set[str] = set()

    def begin(self, job: int, start: Start) -> None:
        """A job is about to be done."""
        self.job, self._starts[job] = job, start

    def wrote(self, places: slice | np.ndarray) -> None:
        """The present job writes these bytes of LRAM."""
        self._writer[places] = self.job

    def op_of(self, job: int) -> Load | Store | SliceRun | None:
        """The op that a job is meant to be; None for block fetches and jobs that nobody meant."""
        meant = self._alignment.meant[job] if job < len(self._alignment.meant) else None
        return None if meant is None else self._intent.jobs[meant]

    def lacks_load(self, buffer: int) -> bool:
        """Whether a load into a buffer was meant that the program does not have."""
        ops = (self._intent.jobs[job] for job in self._alignment.absent)
        return any(isinstance(op, Load) and op.target.buffer == buffer for op in ops)

    def find(self, node: str, tensor: str, stage: Stage, cause: str, detail: str, *, job: int | None = None) -> None:
        """Note what the present job, or another one, did wrong."""
        self.findings.append(Finding(self.job if job is None else job, node, tensor, stage, cause, detail))

    def stored(self, op: Store, memory: Memory) -> None:
        """Hold what lies in XRAM after a store against what was made."""
        tensor = op.source.tensor or op.target.tensor
        self._made.complete(tensor)
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
        self.find(op.node, tensor, Stage.TILING, cause, detail)

    def blame_operand(
        self, op: SliceRun, tensor: str, operand: PlacedOperand, places: np.ndarray, memory: Memory
    ) -> None:
        """Find out why a tile is not what its tensor holds."""
        writer = int(self._writer[np.clip(places.reshape(-1)[0], 0, self._writer.size - 1)])
        if any(finding.job == writer for finding in self.findings):
            return
        load = self.op_of(writer) if writer != NOBODY else None
        if self.lacks_load(operand.buffer):
            cause, detail = "a load is left out", f"nothing loads {tensor} for the tile, which holds what was there"
        elif isinstance(load, Load):
            start, meant = self._starts[writer], self._descriptor(load)
            assert isinstance(start, StartDma)
            if start.descriptor != meant:
                self.find(load.node, tensor, Stage.TILING, *_wrong_load(start.descriptor, meant, tensor), job=writer)
                return
            if load.target.buffer == operand.buffer:
                self._blame_source(op, load, tensor, memory)
                return
            cause, detail = "a stale buffer", f"the tile of {tensor} still holds what an earlier load left there"
        else:
            cause, detail = "a stale buffer", f"the tile of {tensor} holds what another layer left there"
        self.find(op.node, tensor, Stage.TILING, cause, detail)

    def blame_constant(self, op: SliceRun, constant: PackedConstant, place: PlacedConstant, places: np.ndarray) -> None:
        """Find out why a buffer does not hold the granules of a constant."""
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
                self.find(op.node, constant.name, Stage.CODE_GENERATION, f"wrong {constant.name}", detail, job=writer)
                return
            self.find(load.node, constant.name, Stage.TILING, *_wrong_load(start.descriptor, meant, what), job=writer)
            return
        if self.lacks_load(place.buffer):
            cause, detail = "a load is left out", f"nothing loads {what}, its buffer holds what was there"
        else:
            cause, detail = "a stale buffer", f"the buffer of {what} holds something else"
        self.find(op.node, constant.name, Stage.TILING, cause, detail)

    def _blame_source(self, op: SliceRun, load: Load, tensor: str, memory: Memory) -> None:
        """A load did what it should: what it loaded was wrong."""
        root = self._roots[tensor]
        if root in self._unstored:
            return
        if self._differs_in_xram(load, tensor, memory) is None:
            where = f"{tensor} was loaded before it was stored"
            self.find(op.node, tensor, Stage.TILING, "a load that comes too early", where)
            return
        self._unstored.add(root)
        producer = next((node.name for node in self._graph.nodes if node.output == root), op.node)
        detail = f"{root} in XRAM is not what was computed"
        self.find(producer, root, Stage.TILING, "a result that is not stored", detail)

    def _differs_in_xram(self, op: Load | Store, tensor: str, memory: Memory) -> np.ndarray | None:
        """Bytes of a tensor's image, of those that an op is meant to move, that are not in XRAM; None when all are."""
        root = self._roots[tensor]
        positions = _walked(op.transfer.xram_offset, op.transfer.run, op.transfer.dims)
        values, known = self._made.values[root], self._made.known[root]
        image = np.ascontiguousarray(values).reshape(-1).view(np.uint8)[positions]
        sure = known.reshape(-1)[positions // values.itemsize]
        base = self._intent.address[(op.source if isinstance(op, Load) else op.target).buffer]
        first, last = int(positions.min()), int(positions.max())
        found = memory.image(base + first, last + 1 - first)[positions - first]
        wrong = positions[sure & (found != image)]
        return wrong if wrong.size else None

    def _descriptor(self, op: Load | Store) -> DmaDescriptor:
        """The transfer that an op is meant to be."""
        lram, xram = (op.target, op.source) if isinstance(op, Load) else (op.source, op.target)
        address = self._intent.address
        return DmaDescriptor(
            address[lram.buffer] + op.transfer.lram_offset,
            address[xram.buffer] + op.transfer.xram_offset,
            op.transfer.run,
            op.transfer.dims,
        )


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
