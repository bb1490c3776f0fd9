"""Reading an ONNX file without trusting it."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from torq_byoc.errors import ModelFileError
from torq_byoc.files import Expected, read_ordinary
from torq_byoc.frontend.external_data import resolve_external_data
from torq_byoc.frontend.limits import MAX_MODEL_BYTES
from torq_byoc.frontend.validator.size import check_size
from torq_byoc.frontend.validator.text import check_text

_MODEL_FILE = Expected(
    ModelFileError,
    "The model file",
    "give the path of an .onnx file and check its permissions; store large weights as external data",
    MAX_MODEL_BYTES,
)


def load_model(path: str | Path) -> onnx.ModelProto:
    """Read a model and its external data.

    Only the file's form is checked here; ``validate`` looks at the graph.

    Raises:
        ModelFileError: the file is missing, unreadable, empty, not ONNX, too large or too deeply nested, or
            its external data is missing or lies outside the model's folder.
    """
    path = Path(path)
    model = parse_model(read_ordinary(path, _MODEL_FILE), str(path))
    check_size(model)
    check_text(model)
    resolve_external_data(model, path.parent)
    return model


def parse_model(data: bytes, where: str = "") -> onnx.ModelProto:
    """A model from the bytes of an ONNX file; external data is left unresolved.

    Raises:
        ModelFileError: the bytes are no ONNX model.
    """
    if not data:
        raise ModelFileError("The model file is empty", where=where, why="0 bytes", remedy="export the model again")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as error:
        raise _not_onnx(where, f"it does not parse as an ONNX message ({len(data)} bytes)") from error
    if not model.HasField("graph") or model.ir_version <= 0:
        raise _not_onnx(where, "it holds no graph" if model.ir_version > 0 else "it names no IR version")
    return model


def _not_onnx(where: str, why: str) -> ModelFileError:
    return ModelFileError(
        "The file is not an ONNX model, or is damaged",
        where=where,
        why=why,
        remedy="check that the path is right and that the file was copied completely",
    )
