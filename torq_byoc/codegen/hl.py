"""torq_hl: an ordered list of operations on buffers that have a memory space but no address yet.

Every operand is a declared access (buffer, effect, region), so passes work on any operation without
knowing it: a new kind of op is hoisted, shared or removed by virtue of what it says it reads and writes.
Ops and their parts are structs rather than dataclasses: a compilation makes hundreds of thousands of them.  They are
told apart by their exact type, since ``isinstance`` goes through the metaclass of structs where it says no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Generic, TypeVar, final

import msgspec
import numpy as np

from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region
from torq_byoc.kernels.portion import Portion
from torq_byoc.npu_model.dtypes import DType

ALONE = -1
"""The band of ops that belong to no fused group."""
UNLIKE = -1
"""The form of a slice program that has nothing in common with others."""


class Space(Enum):
    """Where a buffer lives."""

    XRAM = "xram"
    LRAM = "lram"

    __hash__ = object.__hash__


class BufferKind(Enum):
    """What a buffer holds; decides its XRAM section and how its traffic is reported."""

    INPUT = "input"
    OUTPUT = "output"
    ACTIVATION = "activation"
    WEIGHTS = "weights"
    PROGRAM = "program"

    __hash__ = object.__hash__


class Effect(Enum):
    """What an op does to an operand."""

    READ = "read"
    WRITE = "write"

    __hash__ = object.__hash__


READ, WRITE = Effect.READ, Effect.WRITE
"""The members by themselves: reaching them through their class calls a function of ``enum``."""


class Buffer(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A stretch of memory.  ``content`` is the image of a constant XRAM buffer (programs get theirs late)."""

    index: int
    name: str
    space: Space
    nbytes: int
    kind: BufferKind
    content: np.ndarray | None = None


class Access(msgspec.Struct, frozen=True, gc=False):
    """One operand of an op.  ``region`` is a box of ``tensor``; None is the whole buffer."""

    buffer: int
    effect: Effect
    tensor: str = ""
    region: Region | None = None

    def conflicts_with(self, other: Access) -> bool:
        """Whether the two accesses of one buffer must keep their order."""
        if self.effect is READ and other.effect is READ:
            return False
        if self.region is None or other.region is None or self.tensor != other.tensor:
            return True
        own, theirs = self.region, other.region
        for a, n, b, m in zip(own.start, own.extent, theirs.start, theirs.extent, strict=True):
            if a >= b + m or b >= a + n:
                return False
        return True


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """A DMA descriptor with both sides relative to their buffers (see ``isa.DmaDescriptor``)."""

    lram_offset: int
    xram_offset: int
    run: int
    dims: tuple[tuple[int, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes moved."""
        total = self.run
        for count, _ in self.dims:
            total *= count
        return total


Addresses = Sequence[int] | Mapping[int, int]
"""LRAM byte address of every buffer, or of those that an operand needs, by buffer index."""


class PlacedOperand(msgspec.Struct, frozen=True, gc=False):
    """A ``kernels.kernel.Placement`` relative to a buffer; ``buffer`` -1 is an operand the tile leaves out.

    ``shape`` is that of the whole tensor, as the kernel sees it; ``order`` the axes of its XRAM image that the axes
    are, none where they are the same; ``kept`` the stride phases along either axis that are there (``Layout.kept``).
    """

    buffer: int
    offset: int
    shape: tuple[int, ...]
    region: Region
    strides: tuple[int, ...]
    dtype: DType
    phases: tuple[int, int] = (1, 1)
    phase_strides: tuple[int, int] = (0, 0)
    order: tuple[int, ...] = ()
    kept: tuple[int, int] = (1, 1)

    def at(self, addresses: Addresses) -> Placement:
        """The placement once buffers have LRAM addresses."""
        base = addresses[self.buffer] if self.buffer >= 0 else 0
        return Placement(base + self.offset, self.region, self.strides, self.dtype, self.phases, self.phase_strides)


class PlacedConstant(msgspec.Struct, frozen=True, gc=False):
    """A ``kernels.kernel.ConstantPlacement`` relative to a buffer."""

    buffer: int
    first: int
    count: int
    granule_bytes: int

    def at(self, addresses: Addresses) -> ConstantPlacement:
        """The placement once buffers have LRAM addresses."""
        return ConstantPlacement(addresses[self.buffer], self.first, self.count, self.granule_bytes)


class Invocation(msgspec.Struct, frozen=True, gc=False):
    """One kernel call: the part of the node's output that one slice computes, and its operands; with ``portion``
    that part of the reduction, sums being carried from call to call.  ``first`` are the indices of the first elements
    that it needs of its inputs, ``granules`` the first ones of its constants.  ``slices`` are those that the node may
    use, by which its constants are packed; None for all."""

    node: str
    region: Region
    output: PlacedOperand
    inputs: tuple[PlacedOperand, ...]
    constants: tuple[PlacedConstant, ...]
    portion: Portion | None = None
    first: tuple[tuple[int, ...], ...] = ()
    granules: tuple[int, ...] = ()
    slices: int | None = None


@final
class Load(msgspec.Struct, frozen=True, gc=False):
    """XRAM to LRAM for a tile of a node, in a band of a fused group or in none (``ALONE``).

    ``cycles`` is the transfer time, for ordering decisions.
    """

    node: str
    tile: int
    step: int
    band: int
    source: Access
    target: Access
    transfer: Transfer
    cycles: int

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Declared effects, source first."""
        return (self.source, self.target)


@final
class Store(msgspec.Struct, frozen=True, gc=False):
    """LRAM to XRAM."""

    node: str
    step: int
    band: int
    source: Access
    target: Access
    transfer: Transfer
    cycles: int

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Declared effects, source first."""
        return (self.source, self.target)


@final
class SliceCall(msgspec.Struct, frozen=True, gc=False):
    """A kernel call of one slice, not yet cut into programs: what passes work on (see ``programs``).

    ``copies`` names the inputs whose elements the output holds unchanged, each with the distance of the two indices
    (``kernels.kernel.Kernel.copied``).
    """

    node: str
    tile: int
    step: int
    band: int
    slice_index: int
    invocation: Invocation
    accesses: tuple[Access, ...]
    copies: tuple[tuple[int, tuple[int, ...]], ...] = ()


@final
class SliceRun(msgspec.Struct, frozen=True, gc=False):
    """One slice program: tasks [first, last) of the kernel call.

    ``program`` is the LRAM buffer that must hold it, at ``program_offset``; ``accesses`` are those of the call, then
    that of the program.  Runs of one ``form`` are of calls that walk their operands alike, for nodes of one kind
    (``call_forms``); ``UNLIKE`` is like no other.
    """

    node: str
    step: int
    slice_index: int
    invocation: Invocation
    tasks: tuple[int, int]
    program: int
    program_offset: int
    program_bytes: int
    accesses: tuple[Access, ...]
    cycles: int
    form: int = UNLIKE


CallOp = Load | Store | SliceCall
"""Before kernel calls are cut into programs."""
Op = Load | Store | SliceRun
"""After."""
OpT = TypeVar("OpT", CallOp, Op)


@dataclass(frozen=True, eq=False)
class HlProgram(Generic[OpT]):
    """Buffers and ops in an order that is correct when executed one after the other."""

    buffers: tuple[Buffer, ...]
    ops: tuple[OpT, ...]
    tensors: Mapping[str, int]
    """XRAM buffer of every tensor that has one (aliases share)."""

    def with_ops(self, ops: Iterable[OpT]) -> HlProgram[OpT]:
        """The same buffers with another list of ops."""
        return replace(self, ops=tuple(ops))

    @cached_property
    def traffic(self) -> dict[str, int]:
        """Transfers and bytes by direction, and jobs of the slices, as the pass ledger reports them."""
        inward, outward = [], []
        for op in self.ops:
            if type(op) is Load:
                inward.append(op.transfer)
            elif type(op) is Store:
                outward.append(op.transfer)
        return {
            "in_transfers": len(inward),
            "in_bytes": sum([one.nbytes if one.dims else one.run for one in inward]),
            "out_transfers": len(outward),
            "out_bytes": sum([one.nbytes if one.dims else one.run for one in outward]),
            "slice_jobs": len(self.ops) - len(inward) - len(outward),
        }


CallProgram = HlProgram[CallOp]
RunProgram = HlProgram[Op]
