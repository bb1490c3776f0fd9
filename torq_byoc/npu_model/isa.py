"""The instruction set: slice tasks (NDL sets with ALU/ACT configuration), DMA descriptors, NSS tasks.

Plain frozen data.  How it becomes bytes is ``encoding.py``; what it does is ``simulator.py``; what it
costs is ``timing.py``; what it must respect is ``verifier.py``.  What a program has thousands of are structs rather
than dataclasses: quicker to make, to compare and to look up.

A slice task is one loop nest.  Its loops stand in ``SliceTask.loops``, outermost first, and every NDL
dimension names the loop it walks, so an agent's address for a point of the nest is

    base + sum over its dims of stride x (the part of the loop index that this dim counts).

Roles of loops:

* ``PARALLEL``: one iteration after the other, each with accumulators of its own.
* ``LANE``: exactly one; ``SliceTask.vector`` consecutive iterations are done in one cycle.
* ``GROUP``: at most one; ``SliceTask.weights`` consecutive iterations are done in one cycle (the
  parallel weights of an outer product, or the channels of a depthwise group).
* ``REDUCE``: folded into the same accumulators; all of them stand inside the other loops.

Lanes and group members at or beyond the loop's extent neither read nor write.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import final

import msgspec

from torq_byoc.npu_model.dtypes import DType


class _Code(IntEnum):
    """A numbered choice.  It hashes as its number: an enumeration would hash its name, in Python, and tasks are looked
    up by their parts hundreds of thousands of times in a compilation."""

    __hash__ = int.__hash__


class Role(_Code):
    """How the iterations of a loop are done (see above)."""

    PARALLEL = 0
    LANE = 1
    GROUP = 2
    REDUCE = 3


class Tag(_Code):
    """What a loop means to the agents (hardware doc 1.6); only I and J change behaviour (padding)."""

    OTHER = 0
    COLUMN = 1  # X
    ROW = 2  # Y
    FLAT = 3  # A: flat position in a plane
    KERNEL_ROW = 4  # I
    KERNEL_COLUMN = 5  # J
    IN_CHANNEL = 6  # U
    OUT_CHANNEL = 7  # V
    GROUP = 8  # G


class Loop(msgspec.Struct, frozen=True, gc=False):
    """One loop of the nest: its meaning, its number of iterations, its role."""

    tag: Tag
    extent: int
    role: Role


class Agent(_Code):
    """The data movers of a slice (hardware doc 4.1)."""

    REF = 0
    DEDR = 1
    DEWR = 2
    DEBR = 3
    DEQW = 4
    CEDW = 5
    CEDR = 6
    CEWW = 7
    CEWR = 8
    CEPW = 9
    CEPR = 10
    ACPR = 11
    ACBW = 12
    ACBR = 13


class DimKind(_Code):
    """L: done inside one cycle.  H: one cycle a step.  S: the output writer's plane walk, free."""

    L = 0
    H = 1
    S = 2


class NdlDim(msgspec.Struct, frozen=True, gc=False):
    """One dimension of a descriptor.

    ``step`` iterations of the loop pass for each count of this dimension: a lane loop of extent 100 with
    vector 64 is an H dim (count 2, step 64) and an L dim (count 64, step 1).  ``stride`` is in bytes and
    is 0 in register descriptors.
    """

    kind: DimKind
    loop: int
    count: int
    stride: int
    step: int = 1


class Ndl(msgspec.Struct, frozen=True, gc=False):
    """One agent's descriptor: dims outermost first; ``base`` is an LRAM byte address (0 for registers)."""

    agent: Agent
    base: int
    dtype: DType
    dims: tuple[NdlDim, ...]

    def cycles(self) -> int:
        """Product of the counts of the H dims (hardware doc 4.2)."""
        product, high = 1, DimKind.H
        for dim in self.dims:
            if dim.kind is high:
                product *= dim.count
        return product

    def loop_stride(self, loop: int) -> int:
        """Bytes between two neighbouring iterations of a loop; 0 when no dim walks it."""
        for dim in reversed(self.dims):
            if dim.loop == loop and dim.step == 1:
                return dim.stride
        for dim in reversed(self.dims):
            if dim.loop == loop:
                return dim.stride // dim.step
        return 0


class Op0(_Code):
    """What the ALU makes of a data element D and a weight element W before it folds."""

    MUL = 0  # x = D * W
    DBYP = 1  # x = D


class Op1(_Code):
    """How x is folded into P over the reduce loops, and the start value."""

    ACC = 0  # P + x, from 0
    SACC = 1  # + on even, - on odd reduce steps (flat reduce index), from 0
    MUL = 2  # P * x, from 1 (bf16 only)
    MAX = 3
    MIN = 4
    GT = 5  # x[0] > x[1]  -> 1 or 0   (reduce extent exactly 2)
    GE = 6
    EQ = 7
    AND = 8  # logical, on x != 0
    OR = 9
    XOR = 10
    NOT = 11
    BAND = 12
    BOR = 13
    BXOR = 14
    BNOT = 15
    BYP = 16  # P = last x
    AMAX = 17  # flat reduce index of the first maximum
    AMIN = 18
    CARRY = 19  # P = x, bytes side by side: a block on its way to its transposition, no reduce loops


class ActMode(_Code):
    """What ACT makes of a finished accumulator p."""

    ACT = 0  # bias, scale, shift, zero point, clip
    ABS = 1  # |p + bias| then scale, shift, zero point, clip
    NEG = 2
    CLZ = 3  # leading zeros of the 32-bit p; then zero point, clip
    CEL = 4  # float ceil
    FLR = 5  # float floor
    LSL = 6  # p << s, s from the scale slot of B (32-bit wrap); then zero point, clip
    LSR = 7  # logical
    ASR = 8  # arithmetic, rounded by the rounding mode
    I2F = 9  # integer p + bias -> float
    F2I = 10  # float p + bias -> integer by the rounding mode; then zero point, clip
    TABLE = 11  # ACT up to the shift, saturate to int16, look up; then zero point, clip


class Rounding(_Code):
    """Rounding of the rescale shift.  NTP (ties to plus infinity) is the chip's default."""

    NTP = 0
    OFF = 1  # truncate (arithmetic shift)
    NTE = 2  # ties to even
    DBL = 3  # TOSA double rounding


class Plane(msgspec.Struct, frozen=True, gc=False):
    """Padding and stride logic of DEDR when the lanes walk a plane of pixels (REF's registers).

    The lane loop is the flat position f in a frame of ``frame_width`` columns: (y, x) = divmod(f,
    frame_width).  With i, j the indices of the loops tagged KERNEL_ROW and KERNEL_COLUMN:

        Y = y * stride_y + i * dilation_y - pad_top
        X = x * stride_x + j * dilation_x - pad_left

    Outside 0 <= Y < height, 0 <= X < width the operand is ``pad_value``.  Inside, its address is the base
    plus the strides of all loops other than lane, I and J, plus

        (Y % stride_y) * phase_stride_y + (X % stride_x) * phase_stride_x
        + (Y // stride_y) * row_stride + (X // stride_x) * element size

    so a stride-2 operand lies in LRAM as four phase planes (even/odd rows x even/odd columns), each read
    with unit stride.  ``row_stride`` = ``frame_width`` x element size: a vector runs across row ends.
    """

    height: int
    width: int
    frame_width: int
    row_stride: int
    stride_y: int = 1
    stride_x: int = 1
    phase_stride_y: int = 0
    phase_stride_x: int = 0
    dilation_y: int = 1
    dilation_x: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_value: int = 0


class OutputWindow(msgspec.Struct, frozen=True, gc=False):
    """DEQW's plane walk (S dims X, Y): which frame positions are written, and where.

    Lane f of the frame, (y, x) = divmod(f, frame_width), is written when ``first_column <= x <
    first_column + columns``; other positions are dropped.  With x' = x - first_column its address is the
    base plus the strides of the other loops plus

        (y % stride_y) * phase_stride_y + (x' % stride_x) * phase_stride_x
        + (y // stride_y) * row_stride + (x' // stride_x) * column_stride

    A task without output keeps the window of the task that completes its sums: it says which lanes count.
    Strides of 2 write the four phase planes that a stride-2 consumer reads (the writer's even-odd split).
    """

    frame_width: int
    first_column: int
    columns: int
    row_stride: int
    column_stride: int
    stride_y: int = 1
    stride_x: int = 1
    phase_stride_y: int = 0
    phase_stride_x: int = 0


class AluConfig(msgspec.Struct, frozen=True, gc=False):
    """The two stages of the ALU, and what becomes of the accumulators (hardware doc 3.1).

    A reduction may be divided between tasks of one slice that follow one another: all but the first continue
    from the partial sums in PRAM (``clear`` False, the hardware's no_p_clear), all but the last leave theirs
    there (``output`` False, no_p_output).  ``partials.py`` says when that is possible.
    """

    op0: Op0
    op1: Op1
    clear: bool = True
    output: bool = True


class ActConfig(msgspec.Struct, frozen=True, gc=False):
    """The ACT pipeline of hardware doc 3.2; clip bounds are numbers of the output type.

    ``sum_bits`` is the width of the combined sum (32, or 48 for products with an int16 operand).
    """

    mode: ActMode = ActMode.ACT
    shift: int = 0
    rounding: Rounding = Rounding.NTP
    zero_point: int = 0
    clip_min: float = float("-inf")
    clip_max: float = float("inf")
    sum_bits: int = 32


class SliceTask(msgspec.Struct, frozen=True, gc=False):
    """One configuration run of a slice.

    ``ndls`` holds at most one descriptor an agent.  DEDR and DEQW are required unless the task is a fill
    (``fill_value`` set: DEQW alone, every addressed element gets the 16-bit constant, low byte for
    one-byte outputs).  A task without output (``AluConfig.output``) has no descriptor of ACT: neither DEQW and
    ACPR nor those of the B operand.  DEWR is required for Op0.MUL.  DEBR, when present, gives per point of the nest a
    (bias int32, scale int32) pair, 8 bytes, or for float data one fp32 bias, 4 bytes; without it bias is 0
    and scale 1.  ``table`` is 512 x (base int16, slope int16), required for ActMode.TABLE.
    """

    loops: tuple[Loop, ...]
    vector: int
    weights: int
    ndls: tuple[Ndl, ...]
    alu: AluConfig | None = None
    act: ActConfig = ActConfig()
    plane: Plane | None = None
    window: OutputWindow | None = None
    table: tuple[tuple[int, int], ...] | None = None
    fill_value: int | None = None

    @property
    def carries(self) -> bool:
        """Whether partial sums enter or leave the task in PRAM."""
        return self.alu is not None and not (self.alu.clear and self.alu.output)

    def ndl(self, agent: Agent) -> Ndl | None:
        """The descriptor of one agent, or None."""
        for ndl in self.ndls:
            if ndl.agent is agent:
                return ndl
        return None


class Engine(Enum):
    """What an NSS task can start and wait for.  Slices are numbered beside it."""

    DMA_IN = "dma_in"
    DMA_OUT = "dma_out"
    SLICE = "slice"
    CSS = "css"

    __hash__ = object.__hash__


DMA_IN, DMA_OUT, SLICE = Engine.DMA_IN, Engine.DMA_OUT, Engine.SLICE
"""The members by themselves: reaching them through their class calls a function of ``enum``."""


class DmaDescriptor(msgspec.Struct, frozen=True, gc=False):
    """One transfer between XRAM and LRAM.

    The LRAM side is contiguous.  The XRAM side is a run of ``run`` bytes repeated over up to three
    strided dims, outermost first, (count, stride in bytes) each.
    """

    lram: int
    xram: int
    run: int
    dims: tuple[tuple[int, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes moved."""
        total = self.run
        for count, _ in self.dims:
            total *= count
        return total


@final
class StartDma(msgspec.Struct, frozen=True, gc=False):
    """Start a transfer; ``engine`` is DMA_IN (XRAM to LRAM) or DMA_OUT."""

    engine: Engine
    descriptor: DmaDescriptor


@final
class StartSlice(msgspec.Struct, frozen=True, gc=False):
    """Start a slice on the encoded ``SliceTask`` sequence of ``size`` bytes at an LRAM address."""

    slice_index: int
    address: int
    size: int


Start = StartDma | StartSlice


class WaitFor(msgspec.Struct, frozen=True, gc=False):
    """Wait until an engine is idle."""

    engine: Engine
    slice_index: int = 0


class NssTask(msgspec.Struct, frozen=True, gc=False):
    """Start a set of engines at one moment, then wait until a set of engines is idle.

    A task may start an engine only when no job of that engine is outstanding.
    """

    starts: tuple[Start, ...] = ()
    waits: tuple[WaitFor, ...] = ()
