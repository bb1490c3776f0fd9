"""Damaged ONNX models: bytes, and fields of the parsed model."""

from __future__ import annotations

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper

from tests.fuzz.awkward import INTEGERS, Rng, pick
from tests.fuzz.byte_mutants import damaged

OPERATORS = (
    "Conv", "MatMul", "Gemm", "Reshape", "Concat", "Loop", "If", "Resize", "NoSuchOp", "", "LSTM", "Relu", "Add",
    "Mul", "Sigmoid", "Softmax", "Exp", "Log", "ReduceMean", "Transpose", "Sqrt", "Div", "Flatten", "Pow", "Cast",
    "ArgMax", "Tanh", "Gelu", "HardSwish",
)  # fmt: skip
FLOATS = (0.0, -0.0, -1.0, 1e-45, 1e-40, 1e-20, 1e38, -1e38, float("nan"), float("inf"), float("-inf"))
EXTENTS = (0, 1, 2, 5, 17, 1000)


def mutant(data: bytes, rng: Rng) -> bytes:
    """One damaged model: a third by its bytes, the others by its fields."""
    if rng.integers(3) == 0:
        return damaged(data, rng)
    model = onnx.load_from_string(data)
    for _ in range(int(rng.integers(1, 4))):
        pick(rng, EDITS)(model, rng)
    return model.SerializeToString()


def any_field(model: onnx.ModelProto, rng: Rng) -> None:
    """Change a scalar field anywhere."""
    messages = list(_messages(model))
    for _ in range(20):
        message = pick(rng, messages)
        fields = [field for field, _ in message.ListFields()]
        if fields and _change(message, pick(rng, fields), rng):
            return


def dimension(model: onnx.ModelProto, rng: Rng) -> None:
    """An extent of an input, output or initializer."""
    graph = model.graph
    value = pick(rng, [*graph.input, *graph.output, *graph.initializer])
    if isinstance(value, TensorProto):
        dims = [*value.dims] or [1]
        dims[int(rng.integers(len(dims)))] = pick(rng, INTEGERS)
        del value.dims[:]
        value.dims.extend(dims)
    elif value.type.tensor_type.shape.dim:
        dim = pick(rng, value.type.tensor_type.shape.dim)
        if rng.integers(4):
            dim.dim_value = pick(rng, pick(rng, (INTEGERS, EXTENTS)))
        else:
            dim.dim_param = pick(rng, ("N", "", "a b"))


def element_type(model: onnx.ModelProto, rng: Rng) -> None:
    """An element type."""
    value = pick(rng, [*model.graph.input, *model.graph.output, *model.graph.initializer])
    kind = int(pick(rng, (*range(25), -1, 99)))
    if isinstance(value, TensorProto):
        value.data_type = kind
    else:
        value.type.tensor_type.elem_type = kind


def wiring(model: onnx.ModelProto, rng: Rng) -> None:
    """A name that a node reads or makes."""
    node = pick(rng, model.graph.node)
    names = pick(rng, (node.input, node.output))
    known = [name for other in model.graph.node for name in (*other.input, *other.output)]
    if names:
        names[int(rng.integers(len(names)))] = pick(rng, (*known, "", "nowhere"))


def operands(model: onnx.ModelProto, rng: Rng) -> None:
    """One input or output more or less."""
    node = pick(rng, model.graph.node)
    names = pick(rng, (node.input, node.output))
    if names and rng.integers(2):
        del names[int(rng.integers(len(names)))]
    else:
        names.append(pick(rng, (*node.input, *node.output, "more")))


def operator(model: onnx.ModelProto, rng: Rng) -> None:
    """Another operator, or another domain."""
    node = pick(rng, model.graph.node)
    if rng.integers(3):
        node.op_type = pick(rng, (*OPERATORS, *(other.op_type for other in model.graph.node)))
    else:
        node.domain = pick(rng, ("com.microsoft", "ai.onnx.ml", "nobody"))


def attribute(model: onnx.ModelProto, rng: Rng) -> None:
    """An attribute set to something else, perhaps of another type."""
    nodes = [node for node in model.graph.node if node.attribute]
    names = ("axis", "pads", "strides", "group", "kernel_shape", "alpha", "perm", "to", "auto_pad", "dilations")
    node = pick(rng, nodes or model.graph.node)
    own = [one.name for one in node.attribute]
    name = pick(rng, own if own and rng.integers(4) else names)
    rest = [one for one in node.attribute if one.name != name]
    number = pick(rng, INTEGERS)
    value = pick(rng, (number, [number] * int(rng.integers(6)), pick(rng, FLOATS), "VALID", [1.5], [1, -1, 0, 2]))
    del node.attribute[:]
    node.attribute.extend([*rest, helper.make_attribute(name, value, attr_type=None if value != [] else 7)])


def constant(model: onnx.ModelProto, rng: Rng) -> None:
    """The content of an initializer."""
    if not model.graph.initializer:
        return
    tensor = pick(rng, model.graph.initializer)
    kind = rng.integers(5)
    few = tensor.data_type == TensorProto.FLOAT and 0 < int(np.prod(list(tensor.dims))) < 10**6
    if kind == 0 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(len(tensor.raw_data)))]
    elif kind == 1 and tensor.raw_data:
        tensor.raw_data = damaged(tensor.raw_data, rng)
    elif kind == 4 and few and tensor.raw_data:
        single = np.frombuffer(tensor.raw_data, np.float32).copy()
        single[rng.integers(single.size)] = pick(rng, FLOATS)
        tensor.raw_data = single.tobytes()
    elif kind == 2 and few:
        values = np.full(list(tensor.dims), pick(rng, FLOATS), np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    else:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", pick(rng, ("../x", "/etc/passwd", "model.onnx", ""))), ("length", "99999999")):
            tensor.external_data.add(key=key, value=value)


def nodes(model: onnx.ModelProto, rng: Rng) -> None:
    """A node left out, repeated, or in another place."""
    listed = list(model.graph.node)
    place, other = rng.integers(0, len(listed), 2)
    kind = rng.integers(3)
    if kind == 0:
        del listed[place]
    elif kind == 1:
        listed.insert(other, listed[place])
    else:
        listed[place], listed[other] = listed[other], listed[place]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in listed]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def header(model: onnx.ModelProto, rng: Rng) -> None:
    """Versions and imports."""
    kind = rng.integers(4)
    if kind == 0:
        model.ir_version = pick(rng, INTEGERS)
    elif kind == 1 and model.opset_import:
        model.opset_import[0].version = pick(rng, (*INTEGERS, 6, 7, 9, 10, 12, 16, 20, 22))
    elif kind == 2:
        del model.opset_import[:]
    else:
        model.opset_import.add(domain=pick(rng, ("", "x", "ai.onnx")), version=pick(rng, INTEGERS))


def nesting(model: onnx.ModelProto, rng: Rng) -> None:
    """A branch in a branch in a branch."""
    made = [name for node in model.graph.node for name in node.output] or ["nowhere"]
    inner = helper.make_graph([helper.make_node("Relu", [pick(rng, made)], ["q"])], "g", [], [])
    for _ in range(int(pick(rng, (1, 5, 40)))):
        node = helper.make_node("If", ["c"], ["q"], then_branch=inner, else_branch=inner)
        if len(node.SerializeToString()) > 1 << 20:
            break
        inner = helper.make_graph([node], "g", [], [])
    model.graph.node.extend(inner.node)


EDITS = (
    any_field,
    any_field,
    dimension,
    element_type,
    wiring,
    operands,
    operator,
    attribute,
    attribute,
    constant,
    nodes,
    header,
    nesting,
)


def _messages(message: Message):
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                yield from _messages(part)


def _change(message: Message, field, rng: Rng) -> bool:
    """Set a scalar to something of its type; False where it is a message or takes no such value."""
    if field.message_type is not None:
        if rng.integers(8) == 0:
            message.ClearField(field.name)
            return True
        return False
    value = {
        field.TYPE_FLOAT: pick(rng, FLOATS),
        field.TYPE_STRING: pick(rng, ("", "x", "a/b", "\u0000", "y" * 3000)),
        field.TYPE_BYTES: pick(rng, (b"", b"\xff\xfe", b"NOTSET", b"0" * 100)),
    }.get(field.type, pick(rng, INTEGERS))
    try:
        if field.is_repeated:
            listed = getattr(message, field.name)
            listed[int(rng.integers(len(listed)))] = value
        else:
            setattr(message, field.name, value)
    except (ValueError, TypeError):
        return False
    return True
