"""Small ONNX models, onnxruntime with its optimiser off as the truth, and our path beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.frontend import prepare, to_relax
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns import PartitionedModule, lower_partition, partition

CONFIG = NpuConfig()
_ONNX_TYPES = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "float32": TensorProto.FLOAT,
}


@dataclass
class Model:
    """An ONNX graph that grows operator by operator; methods return tensor names."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    count: int = 0

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}_{self.count}"

    def input(self, shape: tuple[int, ...], dtype: str = "float32") -> str:
        name = self.name("in")
        self.inputs.append(helper.make_tensor_value_info(name, _ONNX_TYPES[dtype], shape))
        return name

    def const(self, value: np.ndarray) -> str:
        name = self.name("const")
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(self, kind: str, *inputs: str, **attrs: object) -> str:
        output = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"{output}_node", **attrs))
        return output

    def output(self, tensor: str, dtype: str = "float32") -> None:
        self.outputs.append(helper.make_tensor_value_info(tensor, _ONNX_TYPES[dtype], None))

    def qinput(self, shape: tuple[int, ...], scale: float, zero_point: int = 0, dtype: str = "int8") -> str:
        """A quantized model input, dequantized."""
        return self.dequantize(self.input(shape, dtype), scale, zero_point, dtype)

    def dequantize(self, codes: str, scale: object, zero_point: object, dtype: str, axis: int = 0) -> str:
        return self.op("DequantizeLinear", codes, *self._parameters(scale, zero_point, dtype), axis=axis)

    def quantize(self, tensor: str, scale: object, zero_point: object = 0, dtype: str = "int8") -> str:
        return self.op("QuantizeLinear", tensor, *self._parameters(scale, zero_point, dtype))

    def requantized(self, tensor: str, scale: float, zero_point: int = 0, dtype: str = "int8") -> str:
        """The tensor through a quantize/dequantize pair."""
        return self.dequantize(self.quantize(tensor, scale, zero_point, dtype), scale, zero_point, dtype)

    def qconst(self, codes: np.ndarray, scale: object, zero_point: object = 0, axis: int = 0) -> str:
        """A quantized constant, dequantized."""
        return self.dequantize(self.const(codes), scale, zero_point, str(codes.dtype), axis)

    def _parameters(self, scale: object, zero_point: object, dtype: str) -> tuple[str, str]:
        scales = np.asarray(scale, np.float32)
        zeros = np.broadcast_to(np.asarray(zero_point), scales.shape).astype(dtype)
        return self.const(scales), self.const(zeros)

    def proto(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "test", self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def onnxruntime_outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the float semantics of the model give."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def random_feeds(model: onnx.ModelProto, seed: int = 0, spread: float = 1.0) -> dict[str, np.ndarray]:
    """Codes over the whole range of integer inputs, the extremes among them; a heavy-tailed spread of floats."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            feeds[value.name] = (rng.standard_normal(shape) * spread).astype(dtype)
            continue
        info = np.iinfo(dtype)
        codes = rng.integers(info.min, info.max, shape, endpoint=True, dtype=np.int64)
        flat = codes.reshape(-1)
        flat[: 1 + flat.size // 16] = info.min
        flat[-1 - flat.size // 16 :] = info.max
        feeds[value.name] = codes.astype(dtype)
    return feeds


def partitioned(model: onnx.ModelProto, precision: str) -> PartitionedModule:
    return partition(to_relax(prepare(model)), precision, CONFIG)


def single_graph(model: onnx.ModelProto, precision: str) -> OpGraph:
    """The operator graph of a model that must run on the NPU whole, as one partition."""
    parts = partitioned(model, precision)
    assert parts.cpu_ops == (), parts.cpu_ops
    assert len(parts.partitions) == 1
    return lower_partition(parts.function(parts.partitions[0]), CONFIG)


def npu_outputs(graph: OpGraph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The reference result of a graph that keeps the names of the model's inputs; bf16 results as float32."""
    inputs = {name: feeds[name].astype(graph.tensors[name].dtype.numpy) for name in graph.inputs}
    values = evaluate(graph, inputs)
    return [
        values[name].astype(np.float32) if graph.tensors[name].dtype is DType.BF16 else values[name]
        for name in graph.outputs
    ]


def check_quantized(model: onnx.ModelProto, max_lsb: int = 1, seed: int = 0) -> OpGraph:
    """Our integers against onnxruntime's; returns the graph for checks of its structure."""
    graph = single_graph(model, "quantized")
    feeds = random_feeds(model, seed)
    wanted = onnxruntime_outputs(model, feeds)
    got = npu_outputs(graph, feeds)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert np.unique(theirs).size > 1 or theirs.size == 1, "a saturated output proves nothing"
        assert np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max() <= max_lsb
    return graph


def check_float(model: onnx.ModelProto, cosine: float = 0.999, seed: int = 0, spread: float = 1.0) -> OpGraph:
    """Our bf16 against onnxruntime's fp32, by the cosine of the whole output and its largest error."""
    graph = single_graph(model, "bf16")
    feeds = random_feeds(model, seed, spread)
    rounded = {k: v.astype(ml_dtypes.bfloat16).astype(np.float32) for k, v in feeds.items()}
    wanted = onnxruntime_outputs(model, rounded)
    got = npu_outputs(graph, rounded)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.shape == theirs.shape
        a, b = ours.astype(np.float64).reshape(-1), theirs.astype(np.float64).reshape(-1)
        assert a @ b >= cosine * np.linalg.norm(a) * np.linalg.norm(b)
        assert np.abs(a - b).max() <= 0.03 * np.abs(b).max()
    return graph


def ops(graph: OpGraph) -> list[str]:
    """Operator names in order."""
    return [node.op for node in graph.nodes]
