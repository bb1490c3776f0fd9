"""Codes that are read with other numbers than they were written with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.frontend.graph import array_of, attribute, constant_tensors, producers
from torq_byoc.quantize.output_parts import MOVEMENT

_HANDS_ON = (MOVEMENT - {"Cast"}) | {"MaxPool"}
"""Operators that hand codes on as they are."""
_REMEDY = "quantize the float model again, or give both ends the parameters that the quantizer chose for the tensor"


def quantizer_pairs(subject: Subject) -> Iterator[LintFinding]:
    """Scale, zero point and axis of every DequantizeLinear against those of the QuantizeLinear that it reads from.

    Unlike ones multiply or shift the tensor between the two, which no quantizer means.
    """
    graph = subject.precise.graph
    makers, constants = producers(graph), constant_tensors(graph)
    for node in graph.node:
        writer = _writer(node, makers) if node.op_type == "DequantizeLinear" else None
        unlike = _unlike(writer, node, constants) if writer is not None else ""
        if writer is not None and unlike:
            yield LintFinding(
                "quantizer-pairs",
                Severity.ERROR,
                node.name,
                f"it reads codes that {writer.name} writes with another {unlike}",
                _REMEDY,
            )


def _writer(node: onnx.NodeProto, makers: dict[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    """The QuantizeLinear whose codes a node reads."""
    maker = makers.get(node.input[0])
    while maker is not None and maker.op_type in _HANDS_ON:
        maker = makers.get(maker.input[0])
    return maker if maker is not None and maker.op_type == "QuantizeLinear" else None


def _unlike(writer: onnx.NodeProto, reader: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> str:
    """What differs, with both values; empty for parameters that are not known."""
    scales = [array_of(constants, node.input[1]) for node in (writer, reader)]
    zeros = [_zero_point(node, constants) for node in (writer, reader)]
    if any(one is None for one in (*scales, *zeros)):
        return ""
    for what, (written, read), tolerance in (("scale", scales, 1e-6), ("zero point", zeros, 0.0)):
        assert written is not None and read is not None
        if written.size != read.size:
            return f"{what}: {written.size} values there, {read.size} here"
        there, here = (np.ravel(one).astype(np.float64) for one in (written, read))
        other = np.flatnonzero(np.abs(there - here) > tolerance * np.abs(there))
        if other.size:
            channel = f" of channel {other[0]}" if written.size > 1 else ""
            return f"{what}{channel}: {there[other[0]]:.6g} there, {here[other[0]]:.6g} here"
    axes = [attribute(node, "axis", 1) for node in (writer, reader)]
    direct = reader.input[0] == writer.output[0]
    if direct and scales[0] is not None and scales[0].size > 1 and axes[0] != axes[1]:
        return f"axis: {axes[0]} there, {axes[1]} here"
    return ""


def _zero_point(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> np.ndarray | None:
    if len(node.input) < 3 or not node.input[2]:
        scale = array_of(constants, node.input[1])
        return None if scale is None else np.zeros(scale.shape)
    return array_of(constants, node.input[2])
