"""Stored tensors and declared types: element types that exist, shapes that are possible, data that is all there."""

from __future__ import annotations

import math

import onnx

from torq_byoc.errors import ModelFileError, ShapeError, TorqError
from torq_byoc.frontend.graph import all_graphs, all_tensors
from torq_byoc.frontend.limits import MAX_DIMENSION, MAX_TENSOR_BYTES
from torq_byoc.frontend.tensor_types import ELEMENT_TYPES, storage_bytes, type_name

_EXPORT_AGAIN = "export or save the model again; the file is damaged"


def check_tensors(model: onnx.ModelProto) -> None:
    """Check every stored tensor and every declared tensor type of the model."""
    for tensor in all_tensors(model):
        check_tensor(tensor)
    for graph in all_graphs(model.graph):
        if graph.sparse_initializer:
            raise ModelFileError(
                "Sparse weights are not supported", where="graph", remedy="store the weights as dense tensors"
            )
        for value in [*graph.input, *graph.output, *graph.value_info]:
            check_value_type(value)


def check_tensor(tensor: onnx.TensorProto) -> None:
    """One stored tensor: its type, its shape, and that its data is exactly as long as they say."""
    where = f"tensor {tensor.name!r}"
    check_dimensions(list(tensor.dims), where)
    elements = math.prod(tensor.dims)
    if tensor.data_type == onnx.TensorProto.STRING:
        if len(tensor.string_data) != elements:
            raise _wrong_length(tensor, "string", f"{elements} entries of string_data", len(tensor.string_data))
        return
    if tensor.data_type not in ELEMENT_TYPES:
        raise _bad_type(tensor.data_type, where)
    if storage_bytes(elements, tensor.data_type) > MAX_TENSOR_BYTES:
        raise _too_big(list(tensor.dims), where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ModelFileError(
            "External tensor data was not loaded", where=where, remedy="load the model with torq_byoc's load_model"
        )
    _check_data(tensor, elements, where)


def _check_data(tensor: onnx.TensorProto, elements: int, where: str) -> None:
    kind = ELEMENT_TYPES[tensor.data_type]
    entries = len(getattr(tensor, kind.field))
    if tensor.HasField("raw_data"):
        found, needed, unit = len(tensor.raw_data), storage_bytes(elements, tensor.data_type), "bytes"
        if entries:
            raise ModelFileError(
                "A tensor stores its data twice", where=where, why=f"raw_data and {kind.field}", remedy=_EXPORT_AGAIN
            )
    else:
        found, needed, unit = entries, -(-elements // kind.per_entry), f"entries of {kind.field}"
    if found != needed:
        raise _wrong_length(tensor, kind.name, f"{needed} {unit}", found)


def _wrong_length(tensor: onnx.TensorProto, kind: str, needed: str, found: int) -> ModelFileError:
    return ModelFileError(
        "A tensor's data does not fit its shape",
        where=f"tensor {tensor.name!r}",
        why=f"shape {list(tensor.dims)} of {kind} takes {needed}, the file holds {found}",
        remedy=_EXPORT_AGAIN,
    )


def check_value_type(value: onnx.ValueInfoProto) -> None:
    """A declared input, output or intermediate; -1 is accepted for an unknown dimension, as some exporters write it."""
    if not value.type.HasField("tensor_type"):
        return
    tensor_type = value.type.tensor_type
    where = f"tensor {value.name!r}"
    known = tensor_type.elem_type in ELEMENT_TYPES or tensor_type.elem_type in _NAMED_ONLY
    if tensor_type.elem_type and not known:
        raise _bad_type(tensor_type.elem_type, where)
    dims = [d.dim_value for d in tensor_type.shape.dim if d.HasField("dim_value") and d.dim_value != -1]
    check_dimensions(dims, where)
    if (
        tensor_type.elem_type in ELEMENT_TYPES
        and storage_bytes(math.prod(dims), tensor_type.elem_type) > MAX_TENSOR_BYTES
    ):
        raise _too_big(dims, where)


_NAMED_ONLY = (onnx.TensorProto.STRING, onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)


def check_dimensions(dims: list[int], where: str) -> None:
    """ShapeError for a dimension that is negative or beyond the index type."""
    bad = next((d for d in dims if not 0 <= d <= MAX_DIMENSION), None)
    if bad is not None:
        raise ShapeError(
            "A tensor has an impossible dimension",
            where=where,
            why=f"dimension {bad} of shape {dims} is not in 0..{MAX_DIMENSION}",
            remedy=_EXPORT_AGAIN,
        )


def _too_big(dims: list[int], where: str) -> TorqError:
    return ShapeError(
        "A tensor is too large",
        where=where,
        why=f"shape {dims} takes more than {MAX_TENSOR_BYTES} bytes",
        remedy="reduce the input shapes or split the model",
    )


def _bad_type(data_type: int, where: str) -> ModelFileError:
    return ModelFileError(
        "A tensor has an element type that cannot be read",
        where=where,
        why=f"element type {type_name(data_type)}",
        remedy="export the model with float, bfloat16, integer or boolean tensors",
    )
