"""External tensor data, read by us: onnx and onnxruntime follow paths and lengths that a hostile file chose.

A tensor may name a file inside the model's own folder, a regular file with a single hard link, and a byte
range that lies in that file and is exactly as long as the tensor.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import all_tensors
from torq_byoc.frontend.limits import MAX_MODEL_BYTES
from torq_byoc.frontend.tensor_types import ELEMENT_TYPES, storage_bytes, type_name

_KNOWN_KEYS = frozenset({"location", "offset", "length", "checksum"})


def resolve_external_data(model: onnx.ModelProto, folder: Path) -> None:
    """Read every external tensor of the model into it.

    Raises:
        ModelFileError: a file that is missing, outside ``folder``, or does not hold what the tensor needs.
    """
    tensors = [t for t in all_tensors(model) if t.data_location == onnx.TensorProto.EXTERNAL]
    total = 0
    for tensor in tensors:
        entries = _entries(tensor)
        total += _needed_bytes(tensor)
        if total > MAX_MODEL_BYTES:
            raise _error(tensor, f"the model's external data exceeds {MAX_MODEL_BYTES} bytes", "split the model")
        data = _read(tensor, _safe_path(tensor, folder, entries["location"]), entries)
        tensor.raw_data = data
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _error(tensor: onnx.TensorProto, why: str, remedy: str) -> ModelFileError:
    return ModelFileError(
        "External tensor data cannot be used",
        where=f"tensor {tensor.name!r}",
        why=why,
        remedy=remedy,
    )


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _KNOWN_KEYS or entry.key in entries:
            problem = "appears twice" if entry.key in entries else f"is none of {sorted(_KNOWN_KEYS)}"
            raise _error(tensor, f"the key {entry.key!r} {problem}", "save the model again with onnx.save_model")
        entries[entry.key] = entry.value
    if not entries.get("location"):
        raise _error(tensor, "no file is named", "save the model again with onnx.save_model")
    return entries


def _needed_bytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_type not in ELEMENT_TYPES:
        raise _error(tensor, f"element type {type_name(tensor.data_type)} cannot be external", "export numbers only")
    if any(d < 0 for d in tensor.dims):
        raise _error(tensor, f"its shape is {list(tensor.dims)}", "save the model again with onnx.save_model")
    return storage_bytes(math.prod(tensor.dims), tensor.data_type)


def _safe_path(tensor: onnx.TensorProto, folder: Path, location: str) -> Path:
    remedy = "put the data file beside the model, as a file of its own, and save the model again"
    if "\0" in location or Path(location).is_absolute():
        raise _error(tensor, f"the path {location!r} is not relative to the model's folder", remedy)
    try:
        base = folder.resolve(strict=True)
        path = (base / location).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _error(tensor, f"the file {location!r} cannot be found: {why}", remedy) from error
    if not path.is_relative_to(base):
        raise _error(tensor, f"the path {location!r} leads outside the model's folder", remedy)
    return path


def _read(tensor: onnx.TensorProto, path: Path, entries: dict[str, str]) -> bytes:
    needed = _needed_bytes(tensor)
    offset = _count(tensor, entries, "offset", 0)
    length = _count(tensor, entries, "length", needed)
    if length != needed:
        raise _error(
            tensor,
            f"its length is {length} bytes; shape {list(tensor.dims)} of {type_name(tensor.data_type)} takes {needed}",
            "save the model again with onnx.save_model",
        )
    try:
        # Opened without following a link and non-blocking, then examined through the descriptor: what is
        # checked is what is read.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            _check_file(tensor, path, os.fstat(file.fileno()), offset + length)
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        raise _error(
            tensor, f"{path.name!r} cannot be read: {error.strerror}", "check the file's permissions"
        ) from error
    if len(data) != length:
        raise _error(tensor, f"{path.name!r} ended after {len(data)} of {length} bytes", "copy the file again")
    return data


def _check_file(tensor: onnx.TensorProto, path: Path, status: os.stat_result, end: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _error(tensor, f"{path.name!r} is not a regular file", "put an ordinary data file beside the model")
    if status.st_nlink != 1:
        raise _error(
            tensor,
            f"{path.name!r} has {status.st_nlink} hard links, so it may be a file from elsewhere",
            "copy the data file instead of linking it",
        )
    if end > status.st_size:
        raise _error(
            tensor,
            f"bytes up to {end} are wanted, {path.name!r} has {status.st_size}",
            "copy the data file again; it is truncated or belongs to another model",
        )


def _count(tensor: onnx.TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _error(
            tensor, f"its {key} is {text[:40]!r}, not a byte count", "save the model again with onnx.save_model"
        )
    return int(text)
