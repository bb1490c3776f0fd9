"""Small models that carry their scales, and damage to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

from tests.accuracy.models import chain, data, stages

Change = Callable[[np.ndarray], np.ndarray]


class _Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter([{"x": sample[None]} for sample in data(8, seed=1)["x"]])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


@functools.cache
def _quantized(form: str) -> onnx.ModelProto:
    if form == "ours":
        return stages("chain").precise
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(chain(), source)
        formats = {"QDQ": QuantFormat.QDQ, "QOperator": QuantFormat.QOperator}
        quantize_static(source, target, _Reader(), quant_format=formats[form], per_channel=True)
        return onnx.load(target)


def quantized(form: str = "QDQ") -> onnx.ModelProto:
    """The chain of ``models`` as onnxruntime ("QDQ", "QOperator") or we ("ours") quantize it; yours to change."""
    copy = onnx.ModelProto()
    copy.CopyFrom(_quantized(form))
    return copy


def damaged(model: onnx.ModelProto, tensor: str, change: Change) -> onnx.ModelProto:
    """The model with another value of a stored tensor, in place."""
    (found,) = (one for one in model.graph.initializer if one.name == tensor)
    value = numpy_helper.to_array(found)
    found.CopyFrom(numpy_helper.from_array(np.asarray(change(value.copy())).astype(value.dtype), tensor))
    return model


def with_own(model: onnx.ModelProto, node: str, position: int, change: Change) -> onnx.ModelProto:
    """The model in which one node has its own, changed copy of a stored operand, in place."""
    (reader,) = (one for one in model.graph.node if one.name == node)
    value = next(numpy_helper.to_array(one) for one in model.graph.initializer if one.name == reader.input[position])
    name = f"{node}_{position}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(change(value.copy())).astype(value.dtype), name))
    reader.input[position] = name
    return model
