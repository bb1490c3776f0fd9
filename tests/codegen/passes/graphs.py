"""Small graphs on which passes fire, and what a pass makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from codegen.infra import convolution

from torq_byoc.codegen.build import build
from torq_byoc.codegen.hl import CallProgram, Load, Space, Store
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord
from torq_byoc.schedules.scheduled import Schedule


@dataclass(frozen=True)
class Applied:
    """A program before and after one pass, all passes in front of it done, and what the ledger says of it."""

    schedule: Schedule
    before: CallProgram
    after: CallProgram
    saved: dict[str, int]


def applied(
    name: str, graph: OpGraph, config: NpuConfig | None = None, record: DecisionRecord | None = None
) -> Applied:
    """Run the passes up to one of them."""
    config = config or NpuConfig()
    plan = schedule(graph, config, overrides=record)
    seen = {"build": build(graph, plan, config)}
    _, ledger = run_passes(seen["build"], passes_for(plan, config), observe=seen.__setitem__)
    names = list(seen)
    return Applied(plan, seen[names[names.index(name) - 1]], seen[name], {e.name: e.saved for e in ledger}[name])


def moved_bytes(program: CallProgram, tensor: str) -> tuple[int, int]:
    """Bytes of a tensor's XRAM buffer that are loaded and stored."""
    buffer = program.tensors[tensor]
    assert program.buffers[buffer].space is Space.XRAM
    loads = [op.transfer.nbytes for op in program.ops if isinstance(op, Load) and op.source.buffer == buffer]
    stores = [op.transfer.nbytes for op in program.ops if isinstance(op, Store) and op.target.buffer == buffer]
    return sum(loads), sum(stores)


def one_convolution(channels: int = 16, filters: int = 24, size: int = 16) -> OpGraph:
    """A single 1x1 convolution."""
    builder = GraphBuilder("one")
    x = builder.input("x", (1, channels, size, size), DType.INT8)
    builder.output(convolution(builder, np.random.default_rng(0), x, filters, 1, 1, 0, "conv"))
    return builder.finish()


def two_readers(size: int = 12) -> OpGraph:
    """Two convolutions of the same input, of whose results each is an output."""
    rng, builder = np.random.default_rng(1), GraphBuilder("two")
    x = builder.input("x", (1, 8, size, size), DType.INT8)
    for name in ("left", "right"):
        builder.output(convolution(builder, rng, x, 8, 1, 1, 0, name))
    return builder.finish()


def chain(rows: int = 512) -> OpGraph:
    """Negate, look up, and multiply with what came in: element-wise, so the group's bands do not overlap."""
    builder = GraphBuilder("chain")
    x, shape = builder.input("x", (1, rows, 64), DType.INT16), (1, rows, 64)
    plain = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32), sum_bits=48)
    table = np.stack([np.arange(-256, 256) * 100, np.full(512, 97)], axis=1).astype(np.int16)
    first = builder.emit("act", [x], shape, DType.INT16, attrs={"mode": "NEG"}, rescale=plain, hint="first")
    entry = builder.emit("table", [first], shape, DType.INT16, attrs={"table": table}, rescale=plain, hint="entry")
    scaled = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32), 15, sum_bits=48)
    builder.output(builder.emit("mul", [entry, x], shape, DType.INT16, rescale=scaled, hint="product"))
    return builder.finish()


def fork(size: int = 15, axis: int = 1, begin: int = 0) -> OpGraph:
    """Two convolutions side by side, concatenated along an axis; then, with ``begin``, a part of that; one more."""
    rng, builder = np.random.default_rng(2), GraphBuilder("fork")
    x = builder.input("x", (1, 8, size, size), DType.INT8)
    left = convolution(builder, rng, x, 16, 1, 1, 0, "left")
    right = convolution(builder, rng, x, 16, 3, 1, 1, "right")
    shape = [1, 16, size, size]
    shape[axis] *= 2
    joined = builder.emit("concat", [left, right], tuple(shape), DType.INT8, attrs={"axis": axis}, hint="joined")
    if begin:
        shape[axis] -= begin
        attrs = {"begin": tuple(begin if index == axis else 0 for index in range(4))}
        joined = builder.emit("slice", [joined], tuple(shape), DType.INT8, attrs=attrs, hint="part")
    builder.output(convolution(builder, rng, joined, 9, 1, 1, 0, "down"))
    return builder.finish()
