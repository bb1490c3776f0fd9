"""Calibration and evaluation data: npz files and folders, checked against the model's inputs."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto

from torq_byoc.errors import CalibrationError, unlike_names
from torq_byoc.files import Expected, open_ordinary, reason, special_kind
from torq_byoc.input_arrays import as_type

LABELS, OTHER_LABELS = "labels", "class_labels"
"""Name of the classes beside the inputs, and what they are called where an input has that name."""
MAX_BYTES = 8 << 30
_FLOAT_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
_NPZ = Expected(CalibrationError, "the npz file", "give a file that numpy.savez wrote", MAX_BYTES)


def load_calibration(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays by input name; the first axis counts samples.

    Args:
        path: an npz file, or a folder that holds one npz a sample (read in name order).

    Raises:
        CalibrationError: no such file, not an npz, or arrays that do not stack.
    """
    path = Path(path)
    try:
        if special_kind(path) != "a folder":
            return read_npz(path)
        files = sorted(path.glob("*.npz"))
    except (OSError, ValueError) as error:
        raise _NPZ.refusal(path, reason(error)) from error
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
        CalibrationError: the file is missing, no ordinary file, no npz, holds objects, or claims an absurd size.
    """
    with open_ordinary(path, _NPZ) as (stream, _):
        try:
            return _arrays(stream, path)
        except CalibrationError:
            raise
        except Exception as error:  # zipfile, zlib and numpy's header parser raise a dozen kinds for damaged members
            raise CalibrationError(
                "the file cannot be read as npz", where=str(path), why=str(error), remedy=_NPZ.remedy
            ) from error


def _arrays(stream: BinaryIO, path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(stream) as archive:
        claimed = sum(entry.file_size for entry in archive.infolist())
        names = Counter(name.removesuffix(".npy") for name in archive.namelist())
    if claimed > MAX_BYTES:
        raise CalibrationError(
            "the npz is too large",
            where=str(path),
            why=f"{claimed} > {MAX_BYTES} bytes",
            remedy="use fewer samples",
        )
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise CalibrationError(
            f"the npz holds an array more than once: {twice[0]!r}",
            where=str(path),
            why=f"{names[twice[0]]} members have that name, and nothing says which one counts",
            remedy="write it again with one array a name",
        )
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as members:
        return {name: _array(name, members[name]) for name in members.files}


def _array(name: str, value: object) -> np.ndarray:
    """A member of an npz; numpy gives what is no array as bytes."""
    if not isinstance(value, np.ndarray):
        raise ValueError(f"member {name!r} is no array")
    return value


def labels_name(inputs: Collection[str]) -> str:
    """Under which name the classes of samples stand beside a model's inputs."""
    return OTHER_LABELS if LABELS in inputs else LABELS


def samples(
    model: onnx.ModelProto, data: Mapping[str, np.ndarray], what: str = "calibration"
) -> Iterator[dict[str, np.ndarray]]:
    """One feed a sample, shaped and typed as the model's inputs.

    An array N x d1 x ... gives N samples to an input 1 x d1 x ...; for an input of batch b, N / b.
    ``what`` is how messages call the data.

    Raises:
        CalibrationError: names, shapes or types do not match, there are no samples, or a value is NaN or
            infinite.
    """
    inputs = {value.name: value for value in model.graph.input}
    missing, unknown = sorted(set(inputs) - set(data)), sorted(set(data) - set(inputs) - {labels_name(inputs)})
    if missing or unknown:
        why, remedy = unlike_names(missing, unknown, inputs)
        raise CalibrationError(
            f"the {what} arrays are not named like the model's inputs",
            where=model.graph.name,
            why=why,
            remedy=remedy,
        )
    stacked = {name: _samples_of(name, data[name], value, f"{what} array") for name, value in inputs.items()}
    counts = {name: len(value) for name, value in stacked.items()}
    if len(set(counts.values())) > 1:
        raise CalibrationError(
            "the inputs have unlike numbers of samples",
            where=", ".join(counts),
            why=", ".join(f"{name} has {count}" for name, count in counts.items()),
            remedy="give every input as many samples",
        )
    for index in range(next(iter(counts.values()), 0)):
        yield {name: value[index, ...] for name, value in stacked.items()}


def doubts(model: onnx.ModelProto, data: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """What speaks against data that fits the model in form, as sentences: float inputs that never change."""
    found = []
    for value in model.graph.input:
        array = data[value.name]
        if value.type.tensor_type.elem_type in _FLOAT_TYPES and array.size and (array == array.flat[0]).all():
            found.append(
                f"calibration array {value.name} is {array.flat[0]:g} everywhere: ranges found with it say nothing"
                " about other data, and results may be useless; calibrate with real samples"
            )
    return tuple(found)


def _samples_of(name: str, array: np.ndarray, value: onnx.ValueInfoProto, what: str) -> np.ndarray:
    """The array as [samples, *input shape] in the input's type."""
    tensor = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    _check_shape(name, array, shape, what)
    converted = as_type(array, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), what, name)
    if converted.dtype.kind not in "biu":
        _check_finite(name, converted, what)
    return converted.reshape(-1, *shape)


def _check_shape(name: str, array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    batch = shape[0] if shape else 1
    facts = f"it is {list(array.shape)}, the input is {list(shape)}"
    remedy = f"give {' x '.join(['samples', *map(str, shape[1:])])}"
    if array.ndim != max(len(shape), 1):
        raise CalibrationError(
            f"{what} {name} has the wrong number of dimensions", where=name, why=facts, remedy=remedy
        )
    if array.shape[1:] != shape[1:]:
        raise CalibrationError(f"{what} {name} has the wrong shape", where=name, why=facts, remedy=remedy)
    if not len(array):
        raise CalibrationError(f"{what} {name} holds no samples", where=name, why=facts, remedy=remedy)
    if len(array) % max(batch, 1):
        raise CalibrationError(
            f"{what} {name} does not divide into batches",
            where=name,
            why=f"it holds {len(array)} samples, one inference takes {batch}",
            remedy=f"give a multiple of {batch} samples",
        )


def _check_finite(name: str, array: np.ndarray, what: str) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        nans = int(np.isnan(array).sum())
        raise CalibrationError(
            f"{what} {name} holds NaN or infinite values",
            where=name,
            why=f"{nans} NaN and {int((~finite).sum()) - nans} infinite of {array.size} values,"
            f" the first in row {int(np.argwhere(~finite)[0][0])}",
            remedy="remove the broken samples",
        )
