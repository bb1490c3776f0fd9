"""An LRAM for single slice tasks, and tasks from loop nests."""

from __future__ import annotations

import numpy as np

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.isa import (
    AluConfig,
    Op0,
    Op1,
    Role,
    SliceTask,
    Tag,
)

MAC, ADD = AluConfig(Op0.MUL, Op1.ACC), AluConfig(Op0.DBYP, Op1.ACC)
I8, I16, I32, U8, BF16, FP32 = DType.INT8, DType.INT16, DType.INT32, DType.UINT8, DType.BF16, DType.FP32
OUT = 300_000
BIASES = 290_000


class Memory:
    """An LRAM to put arrays into and to take results from."""

    def __init__(self) -> None:
        self.bytes = np.full(NpuConfig().lram_bytes, 0xA5, np.uint8)
        self._next = 0x800

    def put(self, array: np.ndarray, at: int | None = None) -> int:
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        address = self._next if at is None else at
        self.bytes[address : address + raw.size] = raw
        if at is None:
            self._next += -(-raw.size // 8) * 8
        return address

    def take(self, address: int, dtype: DType, *shape: int) -> np.ndarray:
        count = int(np.prod(shape)) * dtype.size
        return self.bytes[address : address + count].view(dtype.numpy).reshape(shape)

    def run(self, *tasks: SliceTask) -> None:
        for task in tasks:
            execute_task(task, self.bytes)


def task_of(*loops: LoopSpec, **fields) -> SliceTask:
    return build(LoopNest(tuple(loops), **fields), NpuConfig())


def lane(extent: int) -> LoopSpec:
    return LoopSpec("f", extent, Role.LANE, Tag.FLAT)
