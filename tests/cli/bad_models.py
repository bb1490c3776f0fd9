"""Model files that must be refused, each with the error class that says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from tests.cli.tools import INPUT, conv_model


def _saved(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString()


def _edited(change: Callable[[onnx.ModelProto], object]) -> Callable[[Path], bytes]:
    def write(folder: Path) -> bytes:
        del folder
        model = conv_model()
        change(model)
        return _saved(model)

    return write


def _unknown_operators(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type = "NoSuchOperator"
    model.graph.node[2].op_type = "NorThisOne"


def _uninferable(model: onnx.ModelProto) -> None:
    """Two operators that nothing implements, in a domain of their own."""
    model.opset_import.append(helper.make_opsetid("example.domain", 1))
    for node in (model.graph.node[1], model.graph.node[5]):
        node.domain, node.op_type = "example.domain", f"Custom{node.op_type}"


def _opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 999


def _dynamic(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"


def _negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -6


def _dangling(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "nowhere"


def _cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "r"


def _twice(model: onnx.ModelProto) -> None:
    model.graph.node[2].output[0] = "r"


def _mismatch(model: onnx.ModelProto) -> None:
    del model.graph.initializer[0]
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((6, 4, 3, 3), np.float32), "w"))


def _flat_weights(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[1] = "b"


def _bias(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[2] = INPUT


def _indices(model: onnx.ModelProto) -> None:
    model.graph.node[2].output.append("indices")
    model.graph.output.append(helper.make_tensor_value_info("indices", TensorProto.INT64, None))


def _no_plane(model: onnx.ModelProto) -> None:
    model.graph.node[3].input[0] = "b"


def _window(model: onnx.ModelProto) -> None:
    next(a for a in model.graph.node[2].attribute if a.name == "strides").ints[1] = 1 << 62


def _bomb(model: onnx.ModelProto) -> None:
    """A constant of 4 TiB."""
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "huge")
    model.graph.initializer.append(shape)
    model.graph.node.append(helper.make_node("ConstantOfShape", ["huge"], ["bomb"], "bomb"))
    model.graph.output.append(helper.make_tensor_value_info("bomb", TensorProto.FLOAT, None))


def _expand_bomb(model: onnx.ModelProto) -> None:
    """256 GiB out of one value."""
    model.graph.initializer.append(numpy_helper.from_array(np.array([1 << 18, 1 << 18], np.int64), "huge"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 1), np.float32), "one"))
    model.graph.node.append(helper.make_node("Expand", ["one", "huge"], ["bomb"], "bomb"))
    model.graph.output.append(helper.make_tensor_value_info("bomb", TensorProto.FLOAT, None))


def _huge_dimension(model: onnx.ModelProto) -> None:
    """2^62 numbers in the bytes of a few."""
    model.graph.initializer[0].dims[0] = 1 << 62


def _short_data(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.raw_data = tensor.raw_data[:-4]


def _element_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def _axis(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type = "Softmax"
    model.graph.node[1].attribute.append(helper.make_attribute("axis", 7))


def _nested(model: onnx.ModelProto) -> None:
    """Branches in branches, 20 deep."""
    inner = helper.make_graph([helper.make_node("Identity", ["c"], ["q"])], "g", [], [])
    for _ in range(20):
        empty = helper.make_graph([], "e", [], [])
        node = helper.make_node("If", ["flag"], ["q"], then_branch=inner, else_branch=empty)
        inner = helper.make_graph([node], "g", [], [])
    model.graph.node.extend(inner.node)


def _scales(axis: int, count: int) -> Callable[[onnx.ModelProto], None]:
    """Per-channel scales for the 6 x 3 x 3 x 3 weights."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((6, 3, 3, 3), np.int8), "codes"))
        graph.initializer.append(numpy_helper.from_array(np.full(count, 0.5, np.float32), "scales"))
        graph.initializer.append(numpy_helper.from_array(np.zeros(count, np.int8), "zeros"))
        inputs = ["codes", "scales", "zeros"]
        graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, ["w"], "dequantize", axis=axis))

    return change


def with_scale(value: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        graph.initializer.append(numpy_helper.from_array(np.float32(value), "scale"))
        graph.initializer.append(numpy_helper.from_array(np.int8(0), "zero"))
        pair = [
            helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["yq"], "quantize"),
            helper.make_node("DequantizeLinear", ["yq", "scale", "zero"], ["z"], "dequantize"),
        ]
        graph.node.extend(pair)
        graph.output[0].name = "z"

    return change


def _linked(link: Callable[[Path, Path], None]) -> Callable[[Path], bytes]:
    """The data file is a link to a file outside the model's folder."""

    def write(folder: Path) -> bytes:
        data = _external("link.bin")(folder)
        link(folder / "link.bin", folder.parent / "outside.bin")
        return data

    return write


def _external(location: str, **keys: str) -> Callable[[Path], bytes]:
    def write(folder: Path) -> bytes:
        (folder / "weights.bin").write_bytes(bytes(16))
        (folder.parent / "outside.bin").write_bytes(bytes(1 << 12))
        model = conv_model()
        tensor = model.graph.initializer[0]
        external_data_helper.set_external_data(tensor, location)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in keys.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        return _saved(model)

    return write


BAD_MODELS: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "empty file": ("ModelFileError", lambda _: b""),
    "not ONNX": ("ModelFileError", lambda _: b"this is no model at all\n" * 40),
    "truncated": ("ModelFileError", lambda _: _saved(conv_model())[:-200]),
    "opset 999": ("ModelFileError", _edited(_opset)),
    "unknown operators": ("UnsupportedOpError", _edited(_unknown_operators)),
    "operators of another domain": ("UnsupportedOpError", _edited(_uninferable)),
    "pool indices": ("UnsupportedOpError", _edited(_indices)),
    "dynamic dimension": ("ShapeError", _edited(_dynamic)),
    "negative dimension": ("ShapeError", _edited(_negative)),
    "dangling input": ("ModelFileError", _edited(_dangling)),
    "cycle": ("ModelFileError", _edited(_cycle)),
    "tensor written twice": ("ModelFileError", _edited(_twice)),
    "shapes that contradict": ("ShapeError", _edited(_mismatch)),
    "weights of another rank": ("ShapeError", _edited(_flat_weights)),
    "bias of another shape": ("ShapeError", _edited(_bias)),
    "pool of a vector": ("ShapeError", _edited(_no_plane)),
    "stride beyond any tensor": ("ShapeError", _edited(_window)),
    "4 TiB constant": ("ShapeError", _edited(_bomb)),
    "256 GiB expansion": ("ShapeError", _edited(_expand_bomb)),
    "2^62 numbers in a few bytes": ("ShapeError", _edited(_huge_dimension)),
    "weights cut short": ("ModelFileError", _edited(_short_data)),
    "element type 99": ("ModelFileError", _edited(_element_type)),
    "axis out of range": ("ShapeError", _edited(_axis)),
    "branches 20 deep": ("ModelFileError", _edited(_nested)),
    "scales on an axis out of range": ("QuantizationError", _edited(_scales(axis=4, count=6))),
    "fewer scales than channels": ("QuantizationError", _edited(_scales(axis=0, count=5))),
    "infinite scale": ("QuantizationError", _edited(with_scale(float("inf")))),
    "scale 0": ("QuantizationError", _edited(with_scale(0.0))),
    "scale NaN": ("QuantizationError", _edited(with_scale(float("nan")))),
    "negative scale": ("QuantizationError", _edited(with_scale(-0.5))),
    "external data missing": ("ModelFileError", _external("gone.bin")),
    "external data escapes": ("ModelFileError", _external("../outside.bin")),
    "external data absolute": ("ModelFileError", _external("/etc/hostname")),
    "external data too short": ("ModelFileError", _external("weights.bin", length="100000")),
    "external data before the start": ("ModelFileError", _external("weights.bin", offset="-8", length="8")),
    "external data of 2^62 bytes": ("ModelFileError", _external("weights.bin", length=str(1 << 62))),
    "external data with an unknown key": ("ModelFileError", _external("weights.bin", basepath="/etc")),
    "external data behind a symbolic link": ("ModelFileError", _linked(Path.symlink_to)),
    "external data behind a hard link": ("ModelFileError", _linked(Path.hardlink_to)),
}
"""What is wrong -> (expected error, function that returns the file's bytes and may write beside it)."""

UNSUPPORTED_NAMES = {
    "pool indices": ("MaxPool with indices",),
    "unknown operators": ("NoSuchOperator", "NorThisOne"),
    "operators of another domain": ("CustomRelu", "CustomMatMul"),
}
"""Names that must all appear in one message."""

assert conv_model().graph.input[0].name == INPUT
