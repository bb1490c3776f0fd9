"""Operators that only move data: exact, on codes and between a dequantize and a quantize."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops, partitioned

SHAPE = (2, 4, 6, 8)


def int64(*values):
    return np.array(values, np.int64)


MOVES = {
    "reshape": lambda m, x: m.op("Reshape", x, m.const(int64(2, 4, 48))),
    "flatten": lambda m, x: m.op("Flatten", x, axis=2),
    "transpose": lambda m, x: m.op("Transpose", x, perm=[0, 2, 3, 1]),
    "slice": lambda m, x: m.op("Slice", x, *(m.const(int64(*v)) for v in ((1, -6), (3, -1), (1, 3), (1, 2)))),
    "pad": lambda m, x: m.op("Pad", x, m.const(int64(0, 1, 0, 2, 0, 0, 3, 1)), m.const(np.float32(0.0))),
    "tile": lambda m, x: m.op("Tile", x, m.const(int64(1, 2, 1, 3))),
    "expand": lambda m, x: m.op("Expand", m.op("Reshape", x, m.const(int64(2, 1, 24, 8))), m.const(int64(2, 3, 24, 8))),
    "depth to space": lambda m, x: m.op("DepthToSpace", x, blocksize=2),
    "space to depth": lambda m, x: m.op("SpaceToDepth", x, blocksize=2),
    "nearest": lambda m, x: m.op("Resize", x, "", m.const(np.array([1, 1, 2, 3], np.float32)), mode="nearest"),
    "asymmetric": lambda m, x: m.op(
        "Resize",
        x,
        "",
        m.const(np.array([1, 1, 3, 2], np.float32)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "concat": lambda m, x: m.op("Concat", x, x, axis=1),
    "squeeze": lambda m, x: m.op("Squeeze", m.op("Unsqueeze", x, m.const(int64(0))), m.const(int64(0))),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype, zero", [("int8", -127), ("uint8", 7), ("int16", 0)])
def test_between_dequantize_and_quantize_of_one_scale(name, dtype, zero):
    """A relu goes first, because a partition that only moves data is left to the CPU."""
    m = Model()
    x = m.requantized(m.op("Relu", m.qinput(SHAPE, 0.02, zero, dtype)), 0.02, zero, dtype)
    m.output(m.quantize(MOVES[name](m, x), 0.02, zero, dtype), dtype)
    graph = check_quantized(m.proto(), max_lsb=0)
    assert ops(graph).count("act") == 1


@pytest.mark.parametrize("name", MOVES)
def test_float_movement_behind_a_layer_is_done_on_codes(name):
    m = Model()
    y = m.op("Add", m.qinput(SHAPE, 0.02, -128), m.qinput(SHAPE, 0.03, 5))
    m.output(m.quantize(MOVES[name](m, y), 0.04, -9), "int8")
    graph = check_quantized(m.proto())
    assert "sum2" in ops(graph) and all(not t.dtype.is_float for t in graph.tensors.values())


NOTHING = {
    "slice": lambda m, x: m.op(
        "Slice", x, *(m.const(int64(*v)) for v in ((0, 0, -9), (4, 99, 9), (1, 2, 3), (1, 1, 1)))
    ),
    "transpose": lambda m, x: m.op("Transpose", x, perm=[1, 2, 3, 0]),
    "pad": lambda m, x: m.op("Pad", x, m.const(int64(*(0,) * 8)), m.const(np.float32(0.0))),
    "expand": lambda m, x: m.op("Expand", x, m.const(int64(1, 1, 6, 8))),
    "tile": lambda m, x: m.op("Tile", x, m.const(int64(1, 1, 1, 1))),
    "resize": lambda m, x: m.op("Resize", x, "", m.const(np.ones(4, np.float32)), mode="nearest"),
    "concat": lambda m, x: m.op("Concat", x, axis=2),
}


@pytest.mark.parametrize("name", NOTHING)
def test_movement_that_moves_nothing_is_another_name(name):
    m = Model()
    x = m.requantized(m.op("Relu", m.qinput((1, 4, 6, 8), 0.02, -9)), 0.02, -9)
    y = m.op("Add", NOTHING[name](m, x), m.const(np.float32(1.5)))
    m.output(m.quantize(y, 0.03, 0), "int8")
    assert set(ops(check_quantized(m.proto()))) <= {"act", "reshape", "sum2"}


def test_movement_of_codes():
    m = Model()
    codes = m.op("Transpose", m.input((1, 5, 6, 3), "int8"), perm=[0, 3, 1, 2])
    y = m.quantize(m.op("Relu", m.dequantize(codes, 0.1, 3, "int8")), 0.07, -2)
    m.output(m.op("Reshape", y, m.const(int64(1, 90))), "int8")
    graph = check_quantized(m.proto())
    assert ops(graph) == ["reordered", "act", "reshape"]
    assert graph.tensors[graph.inputs[0]].scale == pytest.approx(0.1)
    assert graph.tensors[graph.outputs[0]].zero_point == -2


def test_concat_brings_unlike_scales_to_the_result():
    m = Model()
    parts = [m.qinput((1, c, 4, 4), s, z) for c, s, z in ((3, 0.02, -128), (2, 0.05, 1), (4, 0.03, 0))]
    m.output(m.quantize(m.op("Concat", *parts, axis=1), 0.05, 1), "int8")
    assert ops(check_quantized(m.proto())) == ["act", "act", "concat"]


def test_split_becomes_slices():
    m = Model()
    x = m.requantized(m.op("Relu", m.qinput((1, 8, 4, 4), 0.02, -9)), 0.02, -9)
    halves = [m.name("half"), m.name("half")]
    from onnx import helper

    m.nodes.append(helper.make_node("Split", [x, m.const(int64(3, 5))], halves, name="split", axis=1))
    y = m.op("Add", halves[0], m.op("Slice", halves[1], m.const(int64(2)), m.const(int64(5)), m.const(int64(1))))
    m.output(m.quantize(y, 0.03, 0), "int8")
    assert sorted(set(ops(check_quantized(m.proto())))) == ["act", "slice", "sum2"]


def test_a_lone_movement_stays_on_the_cpu():
    m = Model()
    m.output(m.op("Transpose", m.input((2, 3, 4), "int8"), perm=[2, 0, 1]), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert parts.partitions == ()
    assert [op.reason for op in parts.cpu_ops] == ["data movement between CPU operators"]


def test_interpolation_is_no_movement():
    m = Model()
    m.output(
        m.op(
            "Resize",
            m.op("Relu", m.input((1, 2, 4, 4))),
            "",
            m.const(np.array([1, 1, 2, 2], np.float32)),
            mode="linear",
        )
    )
    parts = partitioned(m.proto(), "bf16")
    assert [(op.op, "computes new values" in op.reason) for op in parts.cpu_ops] == [("image.resize2d", True)]


@pytest.mark.parametrize("name", MOVES)
def test_bf16(name):
    m = Model()
    m.output(MOVES[name](m, m.op("Relu", m.input(SHAPE))))
    check_float(m.proto())
