"""Guards against NaN: behind codes they go, behind floats they stay; and an attention with one is one program."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.frontend.onnx_tools import assert_same_results, graph_model, node, ops
from torq_byoc.compilation.options import Options
from torq_byoc.compiler import compile_model
from torq_byoc.frontend import prepare

F32 = np.float32


def guarded(scale: float = 0.02, default: np.ndarray | None = None, *, floats: bool = False) -> onnx.ModelProto:
    """relu(isnan(x) ? default : x) with x dequantized, each reader by itself; or with a float x."""
    sources = [node("DequantizeLinear", ["q", "s", "z"], name) for name in ("a", "b")]
    if floats:
        sources = [node("Abs", ["q"], name) for name in ("a", "b")]
    nodes = [*sources, node("IsNaN", ["a"], "bad"), node("Where", ["bad", "c", "b"], "w"), node("Relu", ["w"], "y")]
    held = {"s": F32(scale), "z": np.int8(3), "c": F32(0) if default is None else default}
    kinds = {"q": TensorProto.FLOAT if floats else TensorProto.INT8}
    return graph_model(nodes, {"q": [2, 5]}, ["y"], held, dtypes=kinds)


def test_codes_are_numbers() -> None:
    model = guarded()
    result = prepare(model)
    assert ops(result) == ["DequantizeLinear", "Relu"]
    assert_same_results(model, result)


@pytest.mark.parametrize(
    "model",
    [
        guarded(floats=True),
        guarded(scale=1e38),  # 127 steps of it are infinite, and a zero times that is NaN
        guarded(default=np.zeros((3, 1, 1), F32)),  # the result has another shape than x
    ],
)
def test_others_stay(model: onnx.ModelProto) -> None:
    assert {"IsNaN", "Where"} <= set(ops(prepare(model)))


def test_a_result_of_the_model_keeps_its_name() -> None:
    model = guarded()
    del model.graph.node[-1]
    model.graph.output[0].name = "w"
    result = prepare(model)
    assert ops(result) == ["DequantizeLinear"] and result.graph.node[0].output[0] == "w"


def attention() -> onnx.ModelProto:
    """softmax(x k) v with the guard that PyTorch writes."""
    rng = np.random.default_rng(0)
    nodes = [
        node("MatMul", ["x", "k"], "scores"),
        node("Softmax", ["scores"], "weights", axis=-1),
        node("IsNaN", ["weights"], "bad"),
        node("Where", ["bad", "zero", "weights"], "guarded"),
        node("MatMul", ["guarded", "v"], "y"),
    ]
    held = {"k": rng.normal(size=(8, 12)).astype(F32), "v": rng.normal(size=(12, 8)).astype(F32), "zero": F32(0)}
    return graph_model(nodes, {"x": [1, 6, 8]}, ["y"], held)


@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_an_attention_is_one_program_of_the_npu(precision: str) -> None:
    calibration = {"x": np.random.default_rng(1).normal(size=(8, 6, 8)).astype(F32)}
    compiled = compile_model(attention(), Options(precision=precision, calibration=calibration), name="attention")
    assert len(compiled.partitions) == 1
    assert {op.op for op in compiled.facts.cpu_ops} <= {"quantize", "dequantize"}
