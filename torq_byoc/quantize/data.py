"""Calibration and evaluation data: npz files and folders, checked against the model's inputs."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from torq_byoc.errors import CalibrationError

MAX_BYTES = 8 << 30


def load_calibration(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays by input name; the first axis counts samples.

    Args:
        path: an npz file, or a folder that holds one npz a sample (read in name order).

    Raises:
        CalibrationError: no such file, not an npz, or arrays that do not stack.
    """
    path = Path(path)
    if not path.is_dir():
        return read_npz(path)
    files = sorted(path.glob("*.npz"))
    if not files:
        raise CalibrationError(
            "the calibration folder holds no npz file", where=str(path), remedy="put one npz a sample in it"
        )
    samples = [read_npz(file) for file in files]
    for file, sample in zip(files, samples, strict=True):
        shapes = {name: value.shape for name, value in sample.items()}
        if shapes != {name: value.shape for name, value in samples[0].items()}:
            raise CalibrationError(
                "the samples of a calibration folder differ in names or shapes",
                where=str(file),
                why=f"it has {shapes}",
                remedy=f"make every file like {files[0].name}",
            )
    return {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file, without pickle.

    Raises:
        CalibrationError: the file is missing, no npz, holds objects, or claims an absurd size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            claimed = sum(entry.file_size for entry in archive.infolist())
        if claimed > MAX_BYTES:
            raise CalibrationError(
                "the npz is too large",
                where=str(path),
                why=f"{claimed} > {MAX_BYTES} bytes",
                remedy="use fewer samples",
            )
        with np.load(path, allow_pickle=False) as archive:
            return {name: _array(name, archive[name]) for name in archive.files}
    except FileNotFoundError as error:
        raise CalibrationError("there is no such file", where=str(path), remedy="check the path") from error
    except CalibrationError:
        raise
    except Exception as error:  # zipfile, zlib and numpy's header parser raise a dozen kinds for damaged members
        raise CalibrationError(
            "the file cannot be read as npz", where=str(path), why=str(error), remedy="write it with numpy.savez"
        ) from error


def _array(name: str, value: object) -> np.ndarray:
    """A member of an npz; numpy gives what is no array as bytes."""
    if not isinstance(value, np.ndarray):
        raise ValueError(f"member {name!r} is no array")
    return value


def samples(model: onnx.ModelProto, data: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """One feed a sample, shaped and typed as the model's inputs.

    An array N x d1 x ... gives N samples to an input 1 x d1 x ...; for an input of batch b, N / b.

    Raises:
        CalibrationError: names, shapes or types do not match, or a value is NaN or infinite.
    """
    inputs = {value.name: value for value in model.graph.input}
    missing, unknown = sorted(set(inputs) - set(data)), sorted(set(data) - set(inputs) - {"labels"})
    if missing or unknown:
        raise CalibrationError(
            "the calibration arrays are not named like the model's inputs",
            where=model.graph.name,
            why=f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}",
            remedy=f"use exactly {', '.join(inputs)}",
        )
    stacked = {name: _samples_of(name, data[name], value) for name, value in inputs.items()}
    counts = {name: len(value) for name, value in stacked.items()}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        raise CalibrationError(
            "the inputs have unlike numbers of samples, or none",
            why=str(counts),
            remedy="give every input as many samples",
        )
    for index in range(next(iter(counts.values()))):
        yield {name: value[index] for name, value in stacked.items()}


def _samples_of(name: str, array: np.ndarray, value: onnx.ValueInfoProto) -> np.ndarray:
    """The array as [samples, *input shape] in the input's type."""
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    batch = shape[0] if shape else 1
    if array.shape[1:] != shape[1:] or array.ndim != max(len(shape), 1) or len(array) % max(batch, 1):
        raise CalibrationError(
            f"calibration array {name} has the wrong shape",
            where=name,
            why=f"it is {list(array.shape)}, the input is {list(shape)}",
            remedy=f"give samples x {' x '.join(map(str, shape[1:]))}",
        )
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise CalibrationError(
            f"calibration array {name} has the wrong type",
            where=name,
            why=f"it is {array.dtype}, the input is {dtype}",
            remedy=f"convert it to {dtype}",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise CalibrationError(
            f"calibration array {name} holds NaN or infinite values",
            where=name,
            why=f"{int((~np.isfinite(array)).sum())} of {array.size} values",
            remedy="remove the broken samples",
        )
    return array.reshape(-1, *shape).astype(dtype)
