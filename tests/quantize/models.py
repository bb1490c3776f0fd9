"""Small models from text, with constants given as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from torq_byoc.frontend import prepare


def parsed(
    body: str, inputs: str, outputs: str = "y", constants: dict[str, np.ndarray] | None = None, *, opset: int = 17
) -> onnx.ModelProto:
    """A prepared model.

    Args:
        body: its nodes in the syntax of ``onnx.parser``.
        inputs: such as "float[1,4] x".
        outputs: names, separated by commas; all float, of any shape.
        constants: arrays by name, stored as float32 unless they are integers.
    """
    results = ", ".join(f"float {name.strip()}" for name in outputs.split(","))
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({results}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for name, value in (constants or {}).items():
        value = np.asarray(value)
        stored = value if value.dtype.kind in "iu" else value.astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(stored, name))
    for result in model.graph.output:
        result.type.tensor_type.ClearField("shape")
    return prepare(model)


def scales_of(model: onnx.ModelProto) -> dict[str, float]:
    """Scales of a QDQ model by the name of what is quantized."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        node.output[0].removesuffix("_quantized"): float(constants[node.input[1]])
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


def shape_text(shape: Sequence[int]) -> str:
    """A shape as ``onnx.parser`` writes it."""
    return ",".join(map(str, shape))
