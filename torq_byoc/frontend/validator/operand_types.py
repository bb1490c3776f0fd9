"""Operands that the standard wants of one type: a convolution's data, weights and bias, both sides of a sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx.defs import OpSchema

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import describe
from torq_byoc.frontend.shapes import element_types
from torq_byoc.frontend.tensor_types import type_name


def check_operand_types(model: onnx.ModelProto) -> None:
    """ModelFileError for a node of the main graph whose operands share a type in the standard, but not here."""
    types = element_types(model)
    versions = {entry.domain or "": entry.version for entry in model.opset_import}
    for node in model.graph.node:
        for first, second in _pairs(node, versions):
            kinds = types.get(first), types.get(second)
            if all(kinds) and kinds[0] != kinds[1]:
                raise ModelFileError(
                    "Operands have different element types",
                    where=describe(node),
                    why=f"{first!r} is {type_name(kinds[0] or 0)}, {second!r} is {type_name(kinds[1] or 0)}",
                    remedy="insert a Cast, or export the model again",
                )


def _pairs(node: onnx.NodeProto, versions: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Every operand with the first one that the operator's schema gives the same type."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in versions or not onnx.defs.has(node.op_type, versions[domain], domain):
        return
    schema = onnx.defs.get_schema(node.op_type, versions[domain], domain)
    known: dict[str, str] = {}
    for position, name in enumerate(node.input):
        declared = schema.inputs[min(position, len(schema.inputs) - 1)] if schema.inputs else None
        variadic = declared is not None and declared.option == OpSchema.FormalParameterOption.Variadic
        if not name or declared is None or (variadic and not declared.is_homogeneous):
            continue
        if position >= len(schema.inputs) and not variadic:
            continue
        if declared.type_str in known:
            yield known[declared.type_str], name
        else:
            known[declared.type_str] = name
