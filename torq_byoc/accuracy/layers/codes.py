"""How a tensor is quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper


@dataclass(frozen=True)
class Codes:
    """How a tensor is quantized: value = (code - zero_point) * scale, per tensor.

    Attributes:
        name: of the tensor of codes in the quantized model.
        node: name of the node that makes it from floats.
    """

    name: str
    scale: float
    zero_point: int
    dtype: np.dtype
    node: str = ""

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest code."""
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Codes of real values: rounded half to even, saturated; that of zero for NaN."""
        low, high = self.limits
        steps = np.rint(values.astype(np.float64) / self.scale) + self.zero_point
        return np.clip(np.nan_to_num(steps, nan=self.zero_point, posinf=high, neginf=low), low, high).astype(self.dtype)

    def dequantize(self, codes: np.ndarray) -> np.ndarray:
        """Real values of codes, in float64."""
        return (codes.astype(np.float64) - self.zero_point) * self.scale


def codes_of(node: onnx.NodeProto, name: str, constants: Mapping[str, onnx.TensorProto]) -> Codes | None:
    """The quantization of a QuantizeLinear or DequantizeLinear; None for one by channels or unknown."""
    scale = numpy_helper.to_array(constants[node.input[1]]) if node.input[1] in constants else None
    if scale is None or scale.size != 1:
        return None
    zero = np.zeros((), np.uint8)
    if len(node.input) > 2 and node.input[2]:
        zero = numpy_helper.to_array(constants[node.input[2]])
    return Codes(name, float(scale.reshape(())), int(zero.reshape(())), zero.dtype, node.name)
