"""Clips of unchanged codes join the operator before them, or vanish when they clip nothing."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.fold_shifts import fold_shifts

SHAPE = (1, 4, 2, 3)
X = np.random.default_rng(5).integers(-128, 128, (1, 2, 2, 3), dtype=np.int8)


def clipped(low: int, high: int, *, shift: int = 20, joins: bool = True, is_output: bool = False) -> OpGraph:
    """concat (or act) -> act that keeps the codes -> maxpool of one pixel."""
    builder = GraphBuilder("clipped")
    x = builder.input("x", X.shape, DType.INT8)
    if joins:
        made = builder.emit("concat", [x, x], SHAPE, DType.INT8, attrs={"axis": 1}, hint="made")
    else:
        made = builder.emit("act", [x], X.shape, DType.INT8, attrs={"mode": "NEG"}, hint="made")
    unit = np.array([1 << 20], np.int32)
    rescale = Rescale(np.array([7], np.int32), unit, shift, -7, clip_min=low, clip_max=high)
    shape = builder.info(made).shape
    y = builder.emit("act", [made], shape, DType.INT8, rescale=rescale, hint="clip")
    pool = {"kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "pad_value": -128}
    builder.output(builder.emit("maxpool", [y], shape, DType.INT8, attrs=pool, hint="end"))
    if is_output:
        builder.output(y)
    return builder.finish()


@pytest.mark.parametrize(
    ("options", "ops"),
    [
        ({"low": -128, "high": 127}, ["concat", "maxpool"]),
        ({"low": -128, "high": 300}, ["concat", "maxpool"]),
        ({"low": -127, "high": 127}, ["concat", "act", "maxpool"]),
        ({"low": -128, "high": 127, "shift": 19}, ["concat", "act", "maxpool"]),
        ({"low": -128, "high": 127, "is_output": True}, ["concat", "act", "maxpool"]),
        ({"low": -128, "high": 127, "joins": False}, ["act", "maxpool"]),
    ],
    ids=["whole type", "beyond the type", "one code less", "codes change", "a result", "after an act without clip"],
)
def test_clips_that_clip_nothing(options: dict[str, int], ops: list[str]) -> None:
    graph = clipped(**options)
    after = fold_shifts(graph)
    assert [node.op for node in after.nodes] == ops
    assert set(after.outputs) <= set(after.tensors)
    want, got = evaluate(graph, {"x": X}), evaluate(after, {"x": X})
    assert all(np.array_equal(want[name], got[name]) for name in graph.outputs)


def moved(act: Rescale, target: DType, made_by: Rescale, *, read_twice: bool = False) -> OpGraph:
    """act -> act that moves the codes -> maxpool of one pixel; the first one may have another reader."""
    builder = GraphBuilder("moved")
    x = builder.input("x", X.shape, DType.INT8)
    made = builder.emit("act", [x], X.shape, DType.INT8, rescale=made_by, hint="made")
    y = builder.emit("act", [made], X.shape, target, rescale=act, hint="moved")
    pool = {"kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "pad_value": 0}
    builder.output(builder.emit("maxpool", [y], X.shape, target, attrs=pool, hint="end"))
    if read_twice:
        pool = {**pool, "pad_value": -128}
        builder.output(builder.emit("maxpool", [made], X.shape, DType.INT8, attrs=pool, hint="other"))
    return builder.finish()


def step(bias: int, scale: int, shift: int, zero_point: int, low: float, high: float) -> Rescale:
    return Rescale(np.array([bias], np.int32), np.array([scale], np.int32), shift, zero_point, low, high)


STEEP = step(3, 3 << 20, 20, -5, -float("inf"), 100)


@pytest.mark.parametrize(
    ("act", "target", "folds"),
    [
        (step(128, 1 << 20, 20, 0, 0, 255), DType.UINT8, True),
        (step(9, (1 << 30) - 9, 30, -9, -128, 127), DType.INT8, True),
        (step(9, (1 << 30) - 9, 30, 11, -90, 50), DType.INT8, True),
        (step(9, (1 << 30) - (1 << 24), 30, -9, -128, 127), DType.INT8, False),
        (step(9, 1 << 20, 20, 0, -1000, 1000), DType.INT16, False),
        (step(0, 1, 20, 7, -128, 127), DType.INT8, False),
    ],
    ids=["recode", "almost unit", "moved and clipped", "codes change", "another size", "constant"],
)
def test_moves_join_the_operator_before(act: Rescale, target: DType, folds: bool) -> None:
    graph = moved(act, target, STEEP)
    after = fold_shifts(graph)
    assert [node.op for node in after.nodes] == ["act"] * (1 if folds else 2) + ["maxpool"]
    for offset in range(0, 256, X.size):
        feeds = {"x": np.roll(np.arange(-128, 128, dtype=np.int8), -offset)[: X.size].reshape(X.shape)}
        want, got = evaluate(graph, feeds), evaluate(after, feeds)
        assert np.array_equal(want[graph.outputs[0]], got[graph.outputs[0]])


def test_a_move_stays_where_others_read_the_codes() -> None:
    graph = moved(step(128, 1 << 20, 20, 0, 0, 255), DType.UINT8, STEEP, read_twice=True)
    assert [node.op for node in fold_shifts(graph).nodes] == ["act", "act", "maxpool", "maxpool"]
