"""Operators that ONNX defines by a function of simpler ones are replaced by it, where nothing below knows them.

Before: ``y = Celu(x, alpha=2)``
After:  ``a = 2; d = Div(x, a); e = Elu(d); y = Mul(a, e)``

The new nodes are named after the operator that they come from: NAME_1, NAME_2, ..., and the last one NAME.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import defs, helper, inliner

from torq_byoc.frontend.graph import DEFAULT_DOMAINS, all_nodes, default_opset
from torq_byoc.frontend.shapes import infer_shapes

EXPANDED = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "Celu",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "NegativeLogLikelihoodLoss",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
    }
)
"""Operators that TVM either does not import or imports with another meaning."""


_DOMAIN = "torq.expanded"

_MAX_DEPTH = 4
"""Definitions use each other two levels deep."""


def expand_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without those operators; the same object when it has none.

    All nodes must have names.
    """
    for _ in range(_MAX_DEPTH):
        if not any(_is_expanded(node) for node in all_nodes(model.graph)):
            break
        model = _expanded_once(model)
    return model


def _expanded_once(model: onnx.ModelProto) -> onnx.ModelProto:
    calling = onnx.ModelProto()
    calling.CopyFrom(model)
    types = _types(calling)
    for node in all_nodes(calling.graph):
        if _is_expanded(node):
            _call_function(node, calling, types)
    calling.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    expanded = inliner.inline_local_functions(calling)
    kept = [opset for opset in expanded.opset_import if opset.domain != _DOMAIN]
    del expanded.opset_import[:]
    expanded.opset_import.extend(kept)
    _name_after_origins(model.graph, expanded.graph)
    return expanded


def _is_expanded(node: onnx.NodeProto) -> bool:
    return node.op_type in EXPANDED and node.domain in DEFAULT_DOMAINS


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Types of all tensors, stored ones included: some functions depend on them."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    infer_shapes(typed)
    graph = typed.graph
    stored = {t.name: helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in graph.initializer}
    return {value.name: value.type for value in [*graph.value_info, *graph.input, *graph.output]} | stored


def _call_function(node: onnx.NodeProto, model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Turn a node into a call of its definition, as a function of the model; nodes without one stay as they are."""
    version = default_opset(model)
    schema: Any = defs.get_schema(node.op_type, version, "")  # the library declares no methods for definitions
    function = onnx.FunctionProto()
    if found := [v for v in schema.function_opset_versions if v <= version]:
        function.ParseFromString(schema.get_function_with_opset_version(max(found)))
    elif found := [v for v in schema.context_dependent_function_opset_versions if v <= version]:
        known = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        text = schema.get_context_dependent_function_with_opset_version(max(found), node.SerializeToString(), known)
        function.ParseFromString(text)
    if not function.node:
        return
    given = {attribute.name for attribute in node.attribute}
    defaults = {name: schema.attributes[name].default_value for name in schema.attributes if name not in given}
    node.attribute.extend(value for value in defaults.values() if value.name)
    function.domain, function.name = _DOMAIN, f"{node.op_type}_{len(model.functions)}"
    del function.opset_import[:]
    function.opset_import.append(helper.make_opsetid("", version))
    model.functions.append(function)
    node.domain, node.op_type = function.domain, function.name


def _name_after_origins(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """Name the nodes that stand where one was expanded: an origin's nodes end with the last of its outputs."""
    taken = {node.name for node in all_nodes(before)}
    origins = iter([node for node in before.node if _is_expanded(node)])
    origin = next(origins, None)
    missing = set(origin.output) - {""} if origin is not None else set()
    counts: dict[str, int] = {}
    for node in after.node:
        if origin is None or (node.name in taken and not missing & set(node.output)):
            continue
        missing -= set(node.output)
        if missing:
            node.name = _numbered(origin.name, counts, taken)
            continue
        node.name = origin.name
        origin = next(origins, None)
        missing = set(origin.output) - {""} if origin is not None else set()


def _numbered(name: str, counts: dict[str, int], taken: set[str]) -> str:
    while True:
        counts[name] = counts.get(name, 0) + 1
        numbered = f"{name}_{counts[name]}"
        if numbered not in taken:
            taken.add(numbered)
            return numbered
