"""Which ONNX nodes a group of operators came from."""

from __future__ import annotations

from torq_byoc.frontend import onnx_node_name
from torq_byoc.relay_patterns.view import View, op_name

_QUANTIZATION = ("relax.quantize", "relax.dequantize")


def origin_of(view: View) -> str:
    """Names of the group's ONNX nodes, joined by "+"; those of quantize and dequantize only if there are no others."""
    names: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for call in view.calls():
        name = onnx_node_name(call)
        if name:
            names[op_name(call) in _QUANTIZATION][name] = None
    return "+".join(names[False] or names[True])
