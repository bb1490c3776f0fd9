"""Operator sets and operators: versions that exist, domains that are known, all unknown operators in one error."""

from __future__ import annotations

import onnx
from onnx import defs

from torq_byoc.errors import ModelFileError, UnsupportedOpError
from torq_byoc.frontend.graph import DEFAULT_DOMAINS, all_nodes, default_opset, operator_name

OLDEST_OPSET = 7
"""Before it, broadcasting was an attribute and BatchNormalization had another meaning."""

CONTRIBUTED = frozenset(
    [
        "DequantizeLinear",
        "DynamicQuantizeMatMul",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearAdd",
        "QLinearAveragePool",
        "QLinearConcat",
        "QLinearGlobalAveragePool",
        "QLinearLeakyRelu",
        "QLinearMul",
        "QLinearReduceMean",
        "QLinearSigmoid",
        "QLinearSoftmax",
        "QLinearWhere",
        "QuantizeLinear",
    ]
)
"""Operators of the domain ``com.microsoft`` that ``prepare`` rewrites into default ones."""


def check_operators(model: onnx.ModelProto) -> None:
    """Check the operator-set version (ModelFileError) and that every operator exists (UnsupportedOpError)."""
    version = default_opset(model)
    newest = defs.onnx_opset_version()
    if not OLDEST_OPSET <= version <= newest:
        raise ModelFileError(
            "The model uses an operator-set version that is not supported",
            where=f"opset_import {version}",
            why=f"versions {OLDEST_OPSET}..{newest} are",
            remedy="export the model with a supported opset, or convert it with onnx.version_converter",
        )
    functions = {(f.domain, f.name) for f in model.functions}
    unknown: dict[str, list[str]] = {}
    for node in all_nodes(model.graph):
        if (node.domain, node.op_type) not in functions and not _exists(node, version):
            unknown.setdefault(operator_name(node), []).append(node.name or (node.output[0] if node.output else ""))
    if unknown:
        raise _unknown(unknown)


def _exists(node: onnx.NodeProto, version: int) -> bool:
    if node.domain in DEFAULT_DOMAINS:
        return defs.has(node.op_type, version, "")
    return node.domain == "com.microsoft" and node.op_type in CONTRIBUTED


def _unknown(unknown: dict[str, list[str]]) -> UnsupportedOpError:
    listing = "; ".join(f"{op} ({len(n)}: {', '.join(map(repr, n[:3]))})" for op, n in sorted(unknown.items()))
    return UnsupportedOpError(
        f"{len(unknown)} operator type(s) of the model are not known",
        where=listing,
        why="they belong neither to the model's ONNX operator set nor to a supported extension",
        remedy="replace these operators in the exporting framework, or cut the model before them",
        details={"ops": sorted(unknown), "nodes": unknown},
    )
