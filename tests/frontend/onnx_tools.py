"""Small ONNX models for the tests, and the independent float reference."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SHARED_MODELS = Path(os.environ.get("TORQ_TEST_MODELS", Path(__file__).parents[3] / "shared" / "models"))
"""Folder of trained models too large for the repository; tests that need one are skipped without it."""


def graph_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    dtypes: Mapping[str, int] | None = None,
    output_dtype: int = TensorProto.FLOAT,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model from nodes; outputs have no declared shape."""
    dtypes = dtypes or {}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, dtypes.get(n, TensorProto.FLOAT), list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, dtypes.get(n, output_dtype), None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node(
    op: str, inputs: Sequence[str], outputs: str | Sequence[str], name: str = "", **attrs: object
) -> onnx.NodeProto:
    names = [outputs] if isinstance(outputs, str) else list(outputs)
    return helper.make_node(op, list(inputs), names, name=name, **attrs)


def ops(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime without any optimisation; feeds for inputs that do not exist are left out."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {name: value for name, value in feeds.items() if name in wanted})


def random_feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs with an outlier channel; integers stay small and non-negative enough for indices and masks."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            data = rng.standard_normal(shape)
            if len(shape) > 1 and shape[1] > 1:
                data[:, 0] *= 7.5
        else:
            data = rng.integers(
                -100 if dtype == np.int8 else 0, 2 if "mask" in value.name or "type" in value.name else 100, shape
            )
        feeds[value.name] = np.asarray(data, dtype)
    return feeds


def assert_same_results(
    before: onnx.ModelProto, after: onnx.ModelProto, rtol: float = 2e-6, feeds: Mapping[str, np.ndarray] | None = None
) -> None:
    """Both models give the same outputs; tolerance relative to the largest magnitude of each output."""
    feeds = feeds or random_feeds(after)
    for wanted, got in zip(run_reference(before, feeds), run_reference(after, feeds), strict=True):
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        bound = rtol * max(1e-9, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=bound)


def shared_model(name: str) -> Path:
    path = SHARED_MODELS / name
    if not path.exists():
        pytest.skip(f"{path} does not exist; set TORQ_TEST_MODELS to the folder of trained models")
    return path
