"""Hand-assembled programs: a small assembler, and a handful of real programs for verifier and timing tests."""

from __future__ import annotations

import numpy as np

from tests.npu_model.declaring import declared
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import encode_nss, encode_slice_program, nss_bytes
from torq_byoc.npu_model.isa import (
    ActConfig,
    AluConfig,
    DmaDescriptor,
    Engine,
    NssTask,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    SliceTask,
    StartDma,
    StartSlice,
    Tag,
    WaitFor,
)
from torq_byoc.npu_model.presets import preset
from torq_byoc.npu_model.program import Binding, JobInfo, NssBlock, Program, Segment

WAIT_IN, WAIT_OUT = WaitFor(Engine.DMA_IN), WaitFor(Engine.DMA_OUT)
SLICE_WAITS = (WaitFor(Engine.SLICE, 0), WaitFor(Engine.SLICE, 1))
BYPASS = AluConfig(Op0.DBYP, Op1.BYP)
MAC = AluConfig(Op0.MUL, Op1.ACC)


def load(lram: int, xram: int, run: int, *dims: tuple[int, int]) -> StartDma:
    return StartDma(Engine.DMA_IN, DmaDescriptor(lram, xram, run, dims))


def store(lram: int, xram: int, run: int, *dims: tuple[int, int]) -> StartDma:
    return StartDma(Engine.DMA_OUT, DmaDescriptor(lram, xram, run, dims))


class Assembler:
    """Places bindings, constants and programs in XRAM, and cuts the sequencer's tasks into blocks."""

    def __init__(self, config: NpuConfig | None = None) -> None:
        self.config = config or NpuConfig()
        self._next = self.config.xram_base
        self.segments: list[Segment] = []
        self._inputs: list[Binding] = []
        self._outputs: list[Binding] = []
        self._arena = (0, 0)
        self._codes: dict[int, int] = {}
        self.tasks: list[NssTask] = []

    def input(self, name: str, *shape: int, dtype: DType = DType.INT8) -> int:
        return self._bind(self._inputs, name, shape, dtype)

    def output(self, name: str, *shape: int, dtype: DType = DType.INT8) -> int:
        return self._bind(self._outputs, name, shape, dtype)

    def arena(self, nbytes: int) -> int:
        self._arena = (self._reserve(nbytes, 4), nbytes)
        return self._arena[0]

    def weights(self, data: bytes) -> int:
        return self._segment(data, "weights")

    def program(self, *tasks: SliceTask) -> int:
        code = encode_slice_program(tasks)
        address = self._segment(code, "program")
        self._codes[address] = len(code)
        return address

    def size(self, program: int) -> int:
        return self._codes[program]

    def fetch(self, program: int, lram: int) -> StartDma:
        return load(lram, program, self._codes[program])

    def run(self, slice_index: int, program: int, lram: int) -> StartSlice:
        return StartSlice(slice_index, lram, self._codes[program])

    def task(self, *steps) -> None:
        starts = tuple(step for step in steps if not isinstance(step, WaitFor))
        self.tasks.append(NssTask(starts, tuple(step for step in steps if isinstance(step, WaitFor))))

    def finish(self) -> Program:
        """The program, with nothing declared about its jobs (see ``declaring.declared``)."""
        segments = list(self.segments)
        groups = self._groups()
        sizes = [nss_bytes(self._with_fetch(group, 0, 0, 0)) for group in groups[:-1]] + [nss_bytes(groups[-1])]
        addresses = [self._reserve(size, 4) for size in sizes]
        jobs: list[JobInfo] = []
        for number, group in enumerate(groups):
            tasks = group
            if number + 1 < len(groups):
                slot = (number + 1) % 2 * self.config.nss_block_bytes
                tasks = self._with_fetch(group, slot, addresses[number + 1], sizes[number + 1])
            segments.append(Segment(addresses[number], encode_nss(tasks), "nss"))
            for task in tasks:
                jobs += [JobInfo("layer", type(start).__name__, (), (), "") for start in task.starts]
        return Program(
            config=self.config,
            segments=tuple(segments),
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            arena_address=self._arena[0],
            arena_bytes=self._arena[1],
            blocks=tuple(
                NssBlock(address, size, number % 2)
                for number, (address, size) in enumerate(zip(addresses, sizes, strict=True))
            ),
            buffers=(),
            jobs=tuple(jobs),
            seal="",
        )

    def _groups(self) -> list[list[NssTask]]:
        groups: list[list[NssTask]] = [[]]
        for task in self.tasks:
            if nss_bytes(self._with_fetch([*groups[-1], task], 0, 0, 0)) > self.config.nss_block_bytes:
                groups.append([])
            groups[-1].append(task)
        return groups

    @staticmethod
    def _with_fetch(tasks: list[NssTask], lram: int, xram: int, size: int) -> list[NssTask]:
        return [*tasks, NssTask((), (WAIT_IN,)), NssTask((load(lram, xram, size),), (WAIT_IN,))]

    def _bind(self, bindings: list[Binding], name: str, shape: tuple[int, ...], dtype: DType) -> int:
        nbytes = int(np.prod(shape)) * dtype.size
        address = self._reserve(nbytes, self.config.xram_page)
        bindings.append(Binding(name, shape, dtype, address, nbytes, None, 0))
        return address

    def _segment(self, data: bytes, kind: str) -> int:
        address = self._reserve(len(data), 4)
        self.segments.append(Segment(address, data, kind))
        return address

    def _reserve(self, nbytes: int, align: int) -> int:
        address = -(-self._next // align) * align
        self._next = address + nbytes
        return address


def relu(config: NpuConfig, source: int, target: int, count: int, zero_point: int = 3) -> SliceTask:
    """y = clip(x + zero point, 0, 127), int8."""
    nest = LoopNest(
        loops=(LoopSpec("n", count, Role.LANE),),
        data=Operand(source, DType.INT8, {"n": 1}),
        result=Operand(target, DType.INT8, {"n": 1}),
        alu=BYPASS,
        act=ActConfig(zero_point=zero_point, clip_min=0, clip_max=127),
    )
    return build(nest, config)


def fill(config: NpuConfig, target: int, count: int, value: int) -> SliceTask:
    nest = LoopNest(
        loops=(LoopSpec("n", count, Role.LANE),), result=Operand(target, DType.INT8, {"n": 1}), fill_value=value
    )
    return build(nest, config)


def add(config: NpuConfig, left: int, right: int, target: int, count: int) -> SliceTask:
    """y = clip((a + b) >> 1), int8: a reduction of two terms that lie ``right - left`` bytes apart."""
    nest = LoopNest(
        loops=(LoopSpec("n", count, Role.LANE), LoopSpec("r", 2, Role.REDUCE)),
        data=Operand(left, DType.INT8, {"n": 1, "r": right - left}),
        result=Operand(target, DType.INT8, {"n": 1}),
        alu=AluConfig(Op0.DBYP, Op1.ACC),
        act=ActConfig(shift=1, clip_min=-128, clip_max=127),
    )
    return build(nest, config)


def conv3x3(
    config: NpuConfig,
    source: int,
    weights: int,
    pairs: int,
    target: int,
    size: tuple[int, int, int, int],
) -> SliceTask:
    """Same-padded 3x3 int8 convolution of C x H x W to O (a multiple of 4) channels, weights [O/4][C][3][3][4]."""
    channels, height, width, outputs = size
    nest = LoopNest(
        loops=(
            LoopSpec("v", outputs // 4, tag=Tag.OUT_CHANNEL),
            LoopSpec("f", height * width, Role.LANE, Tag.FLAT),
            LoopSpec("g", 4, Role.GROUP, Tag.GROUP),
            LoopSpec("u", channels, Role.REDUCE, Tag.IN_CHANNEL),
            LoopSpec("i", 3, Role.REDUCE, Tag.KERNEL_ROW),
            LoopSpec("j", 3, Role.REDUCE, Tag.KERNEL_COLUMN),
        ),
        data=Operand(source, DType.INT8, {"u": height * width}),
        weight=Operand(weights, DType.INT8, {"v": channels * 36, "u": 36, "i": 12, "j": 4, "g": 1}),
        bias=Operand(pairs, DType.INT32, {"v": 32, "g": 8}),
        result=Operand(target, DType.INT8, {"v": 4 * height * width, "g": height * width}),
        alu=MAC,
        act=ActConfig(shift=10, zero_point=-5, clip_min=-128, clip_max=127),
        plane=Plane(height, width, width, width, pad_top=1, pad_left=1, pad_value=2),
        window=OutputWindow(width, 0, width, width, 1),
        weights=4,
    )
    return build(nest, config)


def double_buffered_relu(tiles: int = 4, count: int = 256, config: NpuConfig | None = None) -> Program:
    """See ``assemble_relu``."""
    return declared(assemble_relu(tiles, count, config).finish())


def assemble_relu(tiles: int, count: int, config: NpuConfig | None = None) -> Assembler:
    """Tiles alternate between the slices; the next tile is loaded while one is computed and one is stored."""
    asm = Assembler(config)
    source, target = asm.input("x", tiles, count), asm.output("y", tiles, count)
    ins, outs, codes = (0x1000, 0x1800), (0x2000, 0x2800), (0x3000, 0x3800)
    programs = [asm.program(relu(asm.config, ins[side], outs[side], count, side + 1)) for side in (0, 1)]
    for side in (0, 1):
        asm.task(asm.fetch(programs[side], codes[side]), WAIT_IN)
    asm.task(load(ins[0], source, count), WAIT_IN)
    for tile in range(tiles):
        side = tile % 2
        steps = [asm.run(side, programs[side], codes[side])]
        if tile + 1 < tiles:
            steps.append(load(ins[1 - side], source + (tile + 1) * count, count))
        if tile:
            steps.append(store(outs[1 - side], target + (tile - 1) * count, count))
        asm.task(*steps, SLICE_WAITS[side], WAIT_IN, WAIT_OUT)
    asm.task(store(outs[(tiles - 1) % 2], target + (tiles - 1) * count, count), WAIT_OUT)
    return asm


def sliced_conv() -> Program:
    """See ``assemble_conv``."""
    return declared(assemble_conv().finish())


def assemble_conv(config: NpuConfig | None = None) -> Assembler:
    """A convolution split over output channels: both slices run at once on one input."""
    asm = Assembler(config)
    height, width, channels, outputs = 6, 7, 3, 8
    rng = np.random.default_rng(7)
    source, target = asm.input("x", channels, height, width), asm.output("y", outputs, height, width)
    half = outputs // 2
    weights = rng.integers(-128, 128, (2, half * channels * 9)).astype(np.int8)
    pairs = rng.integers(-1000, 1000, (2, half, 2)).astype(np.int32)
    blob = b"".join(weights[side].tobytes() + pairs[side].tobytes() for side in (0, 1))
    constants = asm.weights(blob)
    per_side, plane = len(blob) // 2, height * width
    lram_in, lram_w, lram_out, codes = 0x800, 0x1000, 0x4000, (0x8000, 0x8400)
    programs = []
    for side in (0, 1):
        base = lram_w + side * per_side
        size = (channels, height, width, half)
        out = lram_out + side * half * plane
        programs.append(asm.program(conv3x3(asm.config, lram_in, base, base + weights.shape[1], out, size)))
    asm.task(asm.fetch(programs[0], codes[0]), WAIT_IN)
    asm.task(asm.fetch(programs[1], codes[1]), WAIT_IN)
    asm.task(load(lram_w, constants, len(blob)), WAIT_IN)
    asm.task(load(lram_in, source, channels * plane), WAIT_IN)
    asm.task(asm.run(0, programs[0], codes[0]), asm.run(1, programs[1], codes[1]), SLICE_WAITS[0])
    asm.task(store(lram_out, target, half * plane), SLICE_WAITS[1], WAIT_OUT)
    asm.task(store(lram_out + half * plane, target + half * plane, half * plane), WAIT_OUT)
    return asm


def spilled_chain() -> Program:
    """See ``assemble_chain``."""
    return declared(assemble_chain().finish())


def assemble_chain(config: NpuConfig | None = None) -> Assembler:
    """relu, spill to the arena column-wise, load back in halves, add the halves, store with strides."""
    asm = Assembler(config)
    rows, columns = 6, 40
    count = rows * columns
    source, target, arena = asm.input("x", rows, columns), asm.output("y", rows, columns), asm.arena(count)
    first = asm.program(relu(asm.config, 0x1000, 0x2000, count))
    second = asm.program(
        add(asm.config, 0x3000, 0x3000 + count // 2, 0x4000, count // 2),
        relu(asm.config, 0x4000, 0x5000, count // 2),
        fill(asm.config, 0x5000 + count // 2, count // 2, 9),
    )
    asm.task(asm.fetch(first, 0x6000), WAIT_IN)
    asm.task(load(0x1000, source, count), WAIT_IN)
    asm.task(asm.run(1, first, 0x6000), asm.fetch(second, 0x6800), SLICE_WAITS[1], WAIT_IN)
    half = columns // 2
    asm.task(store(0x2000, arena, half, (rows, columns)), WAIT_OUT)
    asm.task(store(0x2000 + count // 2, arena + half, half, (rows, columns)), WAIT_OUT)
    asm.task(load(0x3000, arena, count), WAIT_IN)
    asm.task(asm.run(0, second, 0x6800), SLICE_WAITS[0])
    asm.task(store(0x5000, target, half, (rows, columns)), WAIT_OUT)
    asm.task(store(0x5000 + count // 2, target + half, half, (rows, columns)), WAIT_OUT)
    return asm


def assemblies() -> dict[str, Assembler]:
    """The originals of the mutation test, not yet cut into blocks; a small LRAM keeps runs quick."""
    config = preset("lram64")
    return {
        "double_buffered_relu": assemble_relu(4, 256, config),
        "odd_relu": assemble_relu(5, 77, config),
        "many_blocks": assemble_relu(18, 64, config),
        "sliced_conv": assemble_conv(config),
        "spilled_chain": assemble_chain(config),
    }


def programs() -> dict[str, Program]:
    """The originals, finished and declared."""
    return {name: declared(assembler.finish()) for name, assembler in assemblies().items()}
