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


def _scale(value: float) -> Callable[[onnx.ModelProto], None]:
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
    "scale 0": ("QuantizationError", _edited(_scale(0.0))),
    "scale NaN": ("QuantizationError", _edited(_scale(float("nan")))),
    "negative scale": ("QuantizationError", _edited(_scale(-0.5))),
    "external data missing": ("ModelFileError", _external("gone.bin")),
    "external data escapes": ("ModelFileError", _external("../outside.bin")),
    "external data absolute": ("ModelFileError", _external("/etc/hostname")),
    "external data too short": ("ModelFileError", _external("weights.bin", length="100000")),
    "external data before the start": ("ModelFileError", _external("weights.bin", offset="-8", length="8")),
}
"""What is wrong -> (expected error, function that returns the file's bytes and may write beside it)."""

UNSUPPORTED_NAMES = {
    "pool indices": ("MaxPool with indices",),
    "unknown operators": ("NoSuchOperator", "NorThisOne"),
    "operators of another domain": ("CustomRelu", "CustomMatMul"),
}
"""Names that must all appear in one message."""

assert conv_model().graph.input[0].name == INPUT
