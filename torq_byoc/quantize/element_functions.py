"""Element-wise operators of one tensor are one function: nothing is rounded inside it.

Before: ``e = Erf(x / 1.41); y = x * (e + 1) / 2``, a scale for every operator's result
After:  ``x`` and ``y`` have scales, what lies between stays real

A function of one 8-bit tensor is a table of 256 entries, however many operators it is written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx

_ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min",
        "Mish", "Mul", "Neg", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Swish", "Tanh",
    }
)  # fmt: skip


def inside_functions(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, onnx.TensorProto],
    shapes: Mapping[str, tuple[int, ...]],
    is_apart: Callable[[onnx.NodeProto], bool],
    outputs: Iterable[str],
) -> frozenset[str]:
    """Tensors between the operators of a function of one tensor.

    Args:
        nodes: of the graph, in order.
        constants: stored tensors by name.
        shapes: of all tensors.
        is_apart: whether a node is no operator of such a function (it has no integer form, or another node does its
            work).
        outputs: of the graph; they are always rounded.
    """
    origins: dict[str, str] = {}
    for node in nodes:
        origin = None if is_apart(node) else _origin(node, constants, shapes, origins)
        for name in node.output:
            origins[name] = origin or name
    return _between(nodes, origins, frozenset(outputs))


def _origin(
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    shapes: Mapping[str, tuple[int, ...]],
    origins: Mapping[str, str],
) -> str | None:
    """The one tensor that a node's result is an element-wise function of; None when there is no such tensor."""
    if node.op_type not in _ELEMENTWISE:
        return None
    computed = [name for name in node.input if name and name not in constants]
    stored = [constants[name] for name in node.input if name in constants]
    found = {origins.get(name, name) for name in computed}
    if len(found) != 1 or any(size != 1 for tensor in stored for size in tensor.dims):
        return None
    origin = found.pop()
    same = all(name in shapes and shapes[name] == shapes.get(origin) for name in node.output)
    return origin if same else None


def _between(nodes: Sequence[onnx.NodeProto], origins: Mapping[str, str], outputs: frozenset[str]) -> frozenset[str]:
    """Tensors of which one and the same later tensor of their function is all that becomes."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in set(node.input):
            readers.setdefault(name, []).append(node)
    ends: dict[str, str] = {}
    inside = set()
    for node in reversed(nodes):
        name = node.output[0]
        users = readers.get(name, [])
        later = {ends[user.output[0]] for user in users if len(user.output) == 1 and user.output[0] in ends}
        same = all(len(user.output) == 1 and origins[user.output[0]] == origins[name] for user in users)
        ends[name] = name
        if origins[name] != name and name not in outputs and users and same and len(later) == 1:
            ends[name] = later.pop()
            inside.add(name)
    return frozenset(inside)
