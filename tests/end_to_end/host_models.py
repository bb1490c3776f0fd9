"""Models whose operators stay on the CPU, and how their results and refusals are judged."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import torq_byoc
from tests.frontend.onnx_tools import graph_model, run_reference
from torq_byoc.errors import TorqError
from torq_byoc.npu_model.dtypes import DType

F32 = np.float32
DOUBLE = TensorProto.DOUBLE
I64 = TensorProto.INT64
BF16 = DType.BF16.numpy


def noise(*shape: int) -> np.ndarray:
    """Numbers with one channel far larger than the others."""
    data = np.random.default_rng(7).standard_normal(shape)
    if len(shape) > 1:
        data[:, 0] *= 7.5
    return data


def typed_model(*nodes: onnx.NodeProto, inputs: dict, outputs: tuple[str, ...] = ("y",), **options: object):
    """A model whose outputs take the types that inference finds; float where it finds none."""
    model = graph_model(nodes, inputs, outputs, **options)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.ClearField("type")
    found = {value.name: value.type for value in onnx.shape_inference.infer_shapes(bare).graph.output}
    for value in model.graph.output:
        if found[value.name].WhichOneof("value"):
            value.type.CopyFrom(found[value.name])
    return model


def assert_like_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray], rtol: float = 0.0) -> None:
    """Compile, run, and compare with onnxruntime; ``rtol`` is a share of the largest magnitude."""
    found = list(torq_byoc.compile(model).run(feeds).values())
    for a, b in zip(found, run_reference(model, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=0)) if b.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=0, atol=rtol * largest)


def refusal(model: onnx.ModelProto, kind: type[TorqError]) -> TorqError:
    """The error of compiling a model, complete in its four parts."""
    with pytest.raises(kind) as caught:
        torq_byoc.compile(model)
    error = caught.value
    assert type(error) is kind and error.what and error.where and error.why and error.remedy
    return error
