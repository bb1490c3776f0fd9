"""A slice program is as long as planned, wherever its operands come to lie."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from codegen.infra import check_program, heavy_tailed

from torq_byoc.codegen import programs
from torq_byoc.codegen.build import build
from torq_byoc.codegen.chunks import program_chunks as chunks
from torq_byoc.codegen.hl import UNLIKE, Op, SliceRun
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.programs import with_programs
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.plan import schedule


@pytest.mark.parametrize("rows", [2, 3, 5, 9])
def test_rows_that_planning_addresses_could_make_coincide(rows: int) -> None:
    """Rows of 8 bytes: with operands planned 8 bytes apart, some row of one would be the other's only row, and the
    loop that steps from operand to operand would vanish from the planned descriptor."""
    builder = GraphBuilder("rows")
    x = builder.input("x", (rows, 8), DType.INT8)
    row = builder.constant(np.arange(-4, 4, dtype=np.int8).reshape(1, 8), "row")
    rescale = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32))
    builder.output(builder.emit("minimum", [x, row], (rows, 8), DType.INT8, rescale=rescale))
    check_program(builder.finish(), NpuConfig())


def softmax_like(tokens: int) -> OpGraph:
    """Products, rows less their maximum, a product with a row each, the transpose: kernels whose calls translate."""
    rng = np.random.default_rng(tokens)
    builder = GraphBuilder("softmax_like")
    x = builder.input("x", (3, tokens, 22), DType.INT8)
    y = builder.input("y", (3, 22, tokens), DType.INT8)
    weights = builder.constant(heavy_tailed(rng, (tokens, 50)), "weights")
    scales = rng.integers(2**24, 2**26, 50).astype(np.int32)
    per_column = Rescale(rng.integers(-200, 200, 50).astype(np.int32), scales, 33, -3, axis=2)
    one = Rescale(np.array([17], np.int32), np.array([5 << 24], np.int32), 33, 2)
    square, wide = (3, tokens, tokens), (3, tokens, 50)
    along_rows = {"kind": "max", "axes": (2,), "keepdims": True}
    scores = builder.emit("matmul", [x, y], square, DType.INT8, rescale=one)
    top = builder.emit("reduce", [scores], (3, tokens, 1), DType.INT8, attrs=along_rows)
    scaled = builder.emit("mul", [scores, top], square, DType.INT8, rescale=one)
    mixed = builder.emit("matmul", [scaled, weights], wide, DType.INT8, rescale=per_column)
    clipped = builder.emit("act", [mixed], wide, DType.INT8, rescale=replace(per_column, clip_min=-50))
    builder.output(builder.emit("transpose", [clipped], (3, 50, tokens), DType.INT8, attrs={"perm": (0, 2, 1)}))
    return builder.finish()


def _unnumbered(op: Op) -> Op:
    """An op whatever others it is like."""
    return msgspec.structs.replace(op, form=UNLIKE) if isinstance(op, SliceRun) else op


@pytest.mark.parametrize("kib", [512, 24, 12])
@pytest.mark.parametrize("tokens", [37, 64])
def test_calls_of_equal_shape_are_cut_alike(monkeypatch: pytest.MonkeyPatch, tokens: int, kib: int) -> None:
    """The sizes and cycles that calls share are those that each of them has by itself."""
    config = replace(NpuConfig(), name=f"lram{kib}", lram_bytes=kib * 1024)
    graph = softmax_like(tokens)
    plan = schedule(graph, config)
    improved, _ = run_passes(build(graph, plan, config), passes_for(plan, config), (), lambda name, program: None)
    cut: list[int] = []
    monkeypatch.setattr(programs, "program_chunks", lambda *given: cut.append(0) or chunks(*given))
    shared, few = with_programs(improved, graph, config), len(cut)
    monkeypatch.setattr(programs, "call_shape", lambda invocation: None)
    apart = with_programs(improved, graph, config)
    assert [_unnumbered(op) for op in apart.ops] == [_unnumbered(op) for op in shared.ops]
    assert few < len(cut) - few or kib == 512
