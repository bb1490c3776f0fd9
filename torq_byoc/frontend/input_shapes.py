"""Fixing the input shapes of a model, and binding inputs to constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.limits import MAX_DIMENSION


def bind_inputs(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[str]:
    """Turn inputs into stored tensors, in place; returns notes."""
    declared = {value.name: value for value in model.graph.input}
    _check_names(values, declared, "bound value")
    for name in sorted(values):
        wanted = declared[name].type.tensor_type.elem_type
        array = np.asarray(values[name]).astype(helper.tensor_dtype_to_np_dtype(wanted))
        model.graph.initializer.append(numpy_helper.from_array(array, name))
        model.graph.input.remove(declared[name])
    return [f"input {name!r} is the constant {np.asarray(values[name]).tolist()!r}"[:200] for name in sorted(values)]


def fix_input_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Give every input a fixed shape, in place; returns notes on the dimensions that were assumed.

    A named dimension takes the same value in every input.  A first dimension that is the only unknown one of
    its input becomes 1.

    Raises:
        ShapeError: names or ranks that do not fit, or dimensions that stay unknown (all inputs at once).
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value for value in model.graph.input if value.name not in stored}
    _check_names(shapes, inputs, "shape")
    known: dict[str, int] = {}
    for name in sorted(shapes):
        _apply(inputs[name], list(shapes[name]), known)
    _apply_names(inputs, known)
    notes = []
    for name, value in inputs.items():
        unknown = [i for i, dim in enumerate(_dims(value)) if _size(dim) is None]
        if unknown == [0] and not _is_zero(_dims(value)[0]):
            label = _label(_dims(value)[0])
            _set(_dims(value)[0], 1)
            known.update({label: 1} if label else {})
            notes.append(f"the batch dimension of input {name!r} was assumed to be 1")
    _apply_names(inputs, known)
    _refuse_unknown(inputs)
    return notes


def _check_names(given: Mapping[str, object], inputs: Mapping[str, onnx.ValueInfoProto], kind: str) -> None:
    wrong = sorted(set(given) - set(inputs))
    if wrong:
        raise ShapeError(
            f"A {kind} is given for an input that the model does not have",
            where=", ".join(map(repr, wrong)),
            why=f"the inputs are {', '.join(map(repr, inputs)) or 'none'}",
            remedy="use one of these names",
        )


def _dims(value: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    return value.type.tensor_type.shape.dim


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """The fixed size; exporters write 0, -1, a name or nothing for an unknown one."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _is_zero(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """A size of 0: an empty tensor, or how some exporters write an unknown dimension."""
    return dim.HasField("dim_value") and dim.dim_value == 0


def _label(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The dimension's name when it has one that two inputs can share; exporters write ``?`` for no name."""
    return dim.dim_param if dim.dim_param.strip("?") else ""


def _set(dim: onnx.TensorShapeProto.Dimension, size: int) -> None:
    dim.Clear()
    dim.dim_value = size


def _apply(value: onnx.ValueInfoProto, wanted: list[int], known: dict[str, int]) -> None:
    where = f"input {value.name!r}"
    if not all(isinstance(n, (int, np.integer)) and 0 < n <= MAX_DIMENSION for n in wanted):
        raise ShapeError(
            "A given shape is impossible", where=where, why=f"{wanted}", remedy=f"use numbers in 1..{MAX_DIMENSION}"
        )
    if not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in wanted)
    dims = _dims(value)
    if len(dims) != len(wanted) or any(_size(d) not in (None, n) for d, n in zip(dims, wanted, strict=True)):
        raise ShapeError(
            "A given shape does not fit the model",
            where=where,
            why=f"given {list(wanted)}, the model has {[_size(d) or d.dim_param or '?' for d in dims]}",
            remedy="keep the dimensions that the model fixes",
        )
    for dim, size in zip(dims, wanted, strict=True):
        label = _label(dim)
        if label and known.setdefault(label, int(size)) != size:
            raise ShapeError(
                "A named dimension gets two sizes",
                where=where,
                why=f"dimension {label!r} is {known[label]} elsewhere and {size} here",
                remedy="give the same size in all shapes",
            )
        _set(dim, int(size))


def _apply_names(inputs: Mapping[str, onnx.ValueInfoProto], known: Mapping[str, int]) -> None:
    for value in inputs.values():
        for dim in _dims(value):
            if _label(dim) in known:
                _set(dim, known[dim.dim_param])


def _refuse_unknown(inputs: Mapping[str, onnx.ValueInfoProto]) -> None:
    open_inputs: dict[str, list[int | str]] = {}
    for name, value in inputs.items():
        sizes: list[int | str] = [_size(d) or d.dim_param or ("0" if _is_zero(d) else "?") for d in _dims(value)]
        if not value.type.tensor_type.HasField("shape") or any(not isinstance(n, int) for n in sizes):
            open_inputs[name] = sizes
    if open_inputs:
        zeros = any(_is_zero(dim) for name in open_inputs for dim in _dims(inputs[name]))
        flags = " ".join(
            f"--shape {name}:" + ("x".join(str(n) if isinstance(n, int) else "N" for n in sizes) or "DIMS")
            for name, sizes in open_inputs.items()
        )
        raise ShapeError(
            "Input dimensions are not known",
            where="; ".join(f"input {name!r} {sizes}" for name, sizes in open_inputs.items()),
            why="the compiler needs fixed shapes" + (" of at least one element" if zeros else ""),
            remedy=f"add {flags} with numbers in place of N",
            details={"inputs": {name: [str(n) for n in sizes] for name, sizes in open_inputs.items()}},
        )
