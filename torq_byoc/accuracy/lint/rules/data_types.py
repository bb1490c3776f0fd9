"""Element types that the NPU does not compute in, so that operators on them run on the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import onnx
from onnx import TensorProto

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject

_REMEDIES: dict[int, str] = {
    TensorProto.DOUBLE: "export the model in float32",
    TensorProto.FLOAT16: "export the model in float32; the compiler makes int8 or bf16 of it",
    TensorProto.INT64: "compute with int32 or float32; keep int64 for shapes and indices",
    TensorProto.UINT64: "compute with int32 or float32",
    TensorProto.UINT32: "compute with int32 or float32",
    TensorProto.STRING: "turn strings into numbers before the model",
    TensorProto.COMPLEX64: "split real and imaginary parts into float32 tensors",
    TensorProto.COMPLEX128: "split real and imaginary parts into float32 tensors",
}
_INDICES = frozenset(
    {
        "ArgMax", "ArgMin", "Cast", "Concat", "Constant", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "Identity", "OneHot", "Range", "Reshape", "ScatterElements", "ScatterND", "Shape", "Slice", "Squeeze", "TopK",
        "Transpose", "Unsqueeze", "NonZero", "NonMaxSuppression", "Split", "Tile", "Where", "Equal",
    }
)  # fmt: skip
"""Operators on indices and shapes, where int64 is what ONNX asks for."""


def data_types(subject: Subject) -> Iterator[LintFinding]:
    """Operators with results in types that no slice computes, counted by type."""
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*subject.prepared.graph.value_info, *subject.prepared.graph.output)
    }
    found: dict[int, list[onnx.NodeProto]] = defaultdict(list)
    for node in subject.prepared.graph.node:
        kind = types.get(node.output[0], TensorProto.UNDEFINED)
        if kind in _REMEDIES and not (kind == TensorProto.INT64 and node.op_type in _INDICES):
            found[kind].append(node)
    for kind, nodes in sorted(found.items()):
        yield LintFinding(
            "data-types",
            Severity.WARNING,
            nodes[0].name,
            f"{len(nodes)} operators compute in {TensorProto.DataType.Name(kind).lower()}, which the NPU does not have:"
            f" they run on the CPU ({', '.join(sorted({node.op_type for node in nodes})[:5])})",
            _REMEDIES[kind],
        )
