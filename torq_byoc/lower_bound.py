"""The lower bound of a model: deliberately simple, so that nobody can tune it (design: section 8).

Compute: MACs of every MAC operator over the peak of its types; everything else is free.  DMA in: each
weight and each model input once, at the stored width.  DMA out: each model output once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from torq_byoc.compiled_model import Floor
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType

MAC_OPS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN"})
_FLOATS = frozenset({np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)})


def model_floor(model: onnx.ModelProto, precision: str, npu_macs: int, config: NpuConfig) -> Floor:
    """The terms of a prepared model's lower bound.

    Args:
        model: static shapes, with value infos for every tensor.
        precision: "bf16", or anything else for the types of the quantized graph.
        npu_macs: MACs of the operators that run on the NPU.
        config: for the peak of each pair of types.
    """
    graph = _Tensors(model, precision)
    macs = 0
    operators: list[tuple[float, int]] = []
    counted: set[str] = set()
    for node in model.graph.node:
        if node.op_type not in MAC_OPS or node.domain not in ("", "ai.onnx"):
            continue
        if scales_channels(node, graph.shape(node.input[1])):
            continue
        amount = _macs(node, graph)
        data, weight = graph.stored(node.input[0]), graph.stored(node.input[1])
        if DType.BF16 in (data, weight):  # an operator of a mixed model that has no integer form
            data = weight = DType.BF16
        macs += amount
        weight_bytes = 0
        for name in node.input[1:]:
            source = graph.source(name)
            if source in graph.constants and source not in counted and len(graph.shape(source)) > 1:
                counted.add(source)
                weight_bytes += math.prod(graph.shape(source)) * graph.stored(name).size
        operators.append((amount / config.peak_macs(data, weight), weight_bytes))
    cycles, weights = sum(entry[0] for entry in operators), sum(entry[1] for entry in operators)
    inputs = sum(graph.nbytes(value.name) for value in model.graph.input)
    outputs = sum(graph.nbytes(value.name) for value in model.graph.output)
    return Floor(macs, npu_macs, cycles, weights + inputs, outputs, tuple(operators))


def scales_channels(node: onnx.NodeProto, weight: tuple[int, ...]) -> bool:
    """Whether a convolution has one product an output: a factor a channel, which sums nothing up."""
    return node.op_type == "Conv" and math.prod(weight[1:]) == 1 and weight[0] > 1


class _Tensors:
    """Shapes and stored types of a model's tensors, seen through quantize and dequantize nodes."""

    def __init__(self, model: onnx.ModelProto, precision: str) -> None:
        self.precision = precision
        self.producer = {name: node for node in model.graph.node for name in node.output}
        self.quantizers: dict[str, str] = {}
        for node in model.graph.node:
            if node.op_type == "QuantizeLinear":
                self.quantizers.setdefault(node.input[0], node.output[0])
        self.constants: Mapping[str, onnx.TensorProto] = {t.name: t for t in model.graph.initializer}
        self.types: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            name: (tuple(t.dims), onnx.helper.tensor_dtype_to_np_dtype(t.data_type))
            for name, t in self.constants.items()
        }
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
            tensor = value.type.tensor_type
            shape = tuple(dim.dim_value for dim in tensor.shape.dim)
            self.types[value.name] = (shape, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.types[name][0]

    def source(self, name: str) -> str:
        """The tensor behind dequantize, reshape-like and transpose nodes."""
        node = self.producer.get(name)
        while node is not None and node.op_type in ("DequantizeLinear", "Reshape", "Transpose", "Unsqueeze"):
            name = node.input[0]
            node = self.producer.get(name)
        return name

    def stored(self, name: str) -> DType:
        """The type in which the machine keeps a tensor."""
        node = self.producer.get(name)
        if node is not None and node.op_type == "DequantizeLinear":
            name = node.input[0]
        elif node is not None and node.op_type == "QuantizeLinear":
            pass
        elif name in self.quantizers:
            name = self.quantizers[name]
        dtype = self.types[name][1] if name in self.types else np.dtype(np.float32)
        if dtype in _FLOATS:
            return DType.BF16
        if dtype == np.bool_:
            return DType.UINT8
        return DType(dtype.name) if dtype.name in DType._value2member_map_ else DType.INT32

    def nbytes(self, name: str) -> int:
        return math.prod(self.shape(name)) * self.stored(name).size


def _macs(node: onnx.NodeProto, graph: _Tensors) -> int:
    weight = graph.shape(node.input[1])
    if node.op_type == "Conv":
        return math.prod(graph.shape(node.output[0])) * math.prod(weight[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(graph.shape(node.input[0])) * math.prod(weight[1:])
    if node.op_type in ("MatMul", "Gemm"):
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        reduction = graph.shape(node.input[0])[-2 if transposed else -1]
        return math.prod(graph.shape(node.output[0])) * reduction
    steps = graph.shape(node.input[0])[0] * graph.shape(node.input[0])[1]
    return steps * (math.prod(weight) + math.prod(graph.shape(node.input[2])))
