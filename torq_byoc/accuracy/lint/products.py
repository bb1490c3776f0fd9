"""Convolutions and matrix products of a QDQ model with constant weights, as the integers that the NPU multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from torq_byoc.frontend.graph import attribute

_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}


@dataclass(frozen=True, eq=False)
class QuantizedProduct:
    """One such node.

    Attributes:
        node: its name.
        op: its operator.
        weight: name of the constant that holds the weights' codes.
        input_scale, input_zero: of its data.
        input_codes: lowest and highest code of the data's type.
        codes: int64 [channels, weights a channel], zero point removed.
        weight_peak: largest code of the weights' type, above its middle.
        scales: float64 [channels].
        bias: float64 [channels], real values; zeros when there is none.
        bias_scales: float64 [channels] of an int32 bias; None without one.
        output_scale: scale of the tensor that its result becomes; None when it stays float.
    """

    node: str
    op: str
    weight: str
    input_scale: float
    input_zero: int
    input_codes: tuple[int, int]
    codes: np.ndarray
    weight_peak: int
    scales: np.ndarray
    bias: np.ndarray
    bias_scales: np.ndarray | None
    output_scale: float | None

    @property
    def bias_codes(self) -> np.ndarray:
        """The bias in steps of input scale x weight scale, float64 [channels]."""
        with np.errstate(all="ignore"):
            return np.rint(self.bias / (self.input_scale * self.scales))

    @property
    def folded_bias(self) -> np.ndarray:
        """The bias as the ACT unit gets it: with the input's zero point folded in, float64 [channels]."""
        return self.bias_codes - self.input_zero * self.codes.sum(axis=1)


def quantized_products(model: onnx.ModelProto) -> tuple[QuantizedProduct, ...]:
    """All products of a QDQ model, in graph order; those of unusual form are left out."""
    return tuple(_Reader(model).products())


class _Reader:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producers = {name: node for node in model.graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def array(self, name: str) -> np.ndarray | None:
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def products(self) -> Iterator[QuantizedProduct]:
        for node in self.graph.node:
            if node.op_type in _CHANNEL_AXIS:
                found = self._product(node)
                if found is not None:
                    yield found

    def _product(self, node: onnx.NodeProto) -> QuantizedProduct | None:
        data, weights = (self.producers.get(name) for name in node.input[:2])
        if not all(n is not None and n.op_type == "DequantizeLinear" for n in (data, weights)):
            return None
        assert data is not None and weights is not None
        raw, scale, input_scale = self.array(weights.input[0]), self.array(weights.input[1]), self.array(data.input[1])
        if raw is None or scale is None or input_scale is None or input_scale.size != 1 or raw.ndim < 2:
            return None
        codes = self._by_channel(node, raw)
        zero = self._zero_point(weights)
        if scale.size not in (1, len(codes)) or zero.size not in (1, len(codes)):
            return None
        limits = np.iinfo(self._code_type(data))
        scales = np.broadcast_to(scale.reshape(-1).astype(np.float64), len(codes))
        return QuantizedProduct(
            node=node.name,
            op=node.op_type,
            weight=weights.input[0],
            input_scale=float(input_scale.reshape(())),
            input_zero=int(self._zero_point(data).reshape(-1)[0]),
            input_codes=(int(limits.min), int(limits.max)),
            codes=codes.astype(np.int64) - zero.reshape(-1, 1),
            weight_peak=_half(raw.dtype),
            scales=scales,
            bias=self._bias(node, len(codes)),
            bias_scales=self._bias_scales(node, len(codes)),
            output_scale=self._output_scale(node.output[0]),
        )

    def _by_channel(self, node: onnx.NodeProto, raw: np.ndarray) -> np.ndarray:
        by_rows = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
        axis = 0 if by_rows else _CHANNEL_AXIS[node.op_type]
        return np.moveaxis(raw, axis, 0).reshape(raw.shape[axis], -1)

    def _zero_point(self, node: onnx.NodeProto) -> np.ndarray:
        found = self.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        return np.zeros(1, np.int64) if found is None else found.astype(np.int64)

    def _code_type(self, node: onnx.NodeProto) -> np.dtype:
        found = self.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        return np.dtype(np.uint8) if found is None else found.dtype

    def _bias_name(self, node: onnx.NodeProto) -> str:
        """Of the tensor that is added to a product; empty without one."""
        if node.op_type == "MatMul":
            readers = self.readers.get(node.output[0], [])
            if len(readers) == 1 and readers[0].op_type == "Add":
                return next((other for other in readers[0].input if other != node.output[0]), "")
        return node.input[2] if len(node.input) > 2 else ""

    def _bias_scales(self, node: onnx.NodeProto, channels: int) -> np.ndarray | None:
        maker = self.producers.get(self._bias_name(node))
        if maker is None or maker.op_type != "DequantizeLinear":
            return None
        codes, scale = self.array(maker.input[0]), self.array(maker.input[1])
        if codes is None or codes.dtype != np.int32 or scale is None or scale.size not in (1, channels):
            return None
        return np.broadcast_to(scale.reshape(-1).astype(np.float64), channels)

    def _bias(self, node: onnx.NodeProto, channels: int) -> np.ndarray:
        name = self._bias_name(node)
        real = self._real(name) if name else None
        if real is None or real.size not in (1, channels):
            return np.zeros(channels)
        return np.broadcast_to(real.reshape(-1), channels)

    def _real(self, name: str) -> np.ndarray | None:
        """Values of a constant, or of a dequantized one."""
        stored = self.array(name)
        if stored is not None:
            return stored.astype(np.float64)
        node = self.producers.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return None
        codes, scale = self.array(node.input[0]), self.array(node.input[1])
        if codes is None or scale is None:
            return None
        return (codes.astype(np.float64) - self._zero_point(node)) * scale.astype(np.float64)

    def _output_scale(self, name: str) -> float | None:
        """Scale of the quantize node that a result reaches through its bias and its clamp."""
        for _ in range(4):
            readers = self.readers.get(name, [])
            if len(readers) != 1:
                return None
            node = readers[0]
            if node.op_type == "QuantizeLinear":
                scale = self.array(node.input[1])
                return float(scale.reshape(())) if scale is not None and scale.size == 1 else None
            if node.op_type not in ("Add", "Relu", "Clip"):
                return None
            name = node.output[0]
        return None


def _half(dtype: np.dtype) -> int:
    """The largest distance of a code from the middle of its type; of packed types by their name."""
    info = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.iinfo(dtype)
    return (int(info.max) - int(info.min)) // 2
