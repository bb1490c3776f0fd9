"""Reading and writing at positions from a tensor of indices, of which none ever reaches outside the data."""

from __future__ import annotations

import numpy as np
from tvm import relax

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, constant_array, dtype_of, static_shape
from torq_byoc.frontend.geometry import normalize_axis

_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def gather(call: OnnxCall) -> relax.Expr:
    """Gather -> ``take`` (mode clip).

    Constant indices are made non-negative; others become ``where(less(i, 0), add(i, n), i)``.
    """
    shape = static_shape(call.data(), call)
    axis = normalize_axis(int(call.attrs.get("axis", 0)), len(shape), call.name)
    return relax.op.take(call.data(), _positive(call, np.array(shape[axis])), axis, mode="clip")


def gather_elements(call: OnnxCall) -> relax.Expr:
    """GatherElements -> ``gather_elements``; indices as for Gather, then held inside the data."""
    shape = static_shape(call.data(), call)
    axis = normalize_axis(int(call.attrs.get("axis", 0)), len(shape), call.name)
    return relax.op.gather_elements(call.data(), _inside(call, np.array(shape[axis])), axis)


def gather_nd(call: OnnxCall) -> relax.Expr:
    """GatherND -> ``gather_nd``; indices as for GatherElements."""
    batch = int(call.attrs.get("batch_dims", 0))
    return relax.op.gather_nd(call.data(), _inside(call, _extents(call, batch)), batch)


def scatter_elements(call: OnnxCall) -> relax.Expr:
    """ScatterElements, and Scatter as it was called first -> ``scatter_elements``; indices as for GatherElements."""
    shape = static_shape(call.data(), call)
    axis = normalize_axis(int(call.attrs.get("axis", 0)), len(shape), call.name)
    indices = _inside(call, np.array(shape[axis]))
    return relax.op.scatter_elements(call.data(), indices, call.data(2), axis=axis, reduction=_reduction(call))


def scatter_nd(call: OnnxCall) -> relax.Expr:
    """ScatterND -> ``scatter_nd``; indices as for GatherElements."""
    return relax.op.scatter_nd(call.data(), _inside(call, _extents(call, 0)), call.data(2), _reduction(call))


def _extents(call: OnnxCall, first: int) -> np.ndarray:
    """The sizes of the dimensions that the last axis of the indices addresses."""
    shape, width = static_shape(call.data(), call), static_shape(call.data(1), call)[-1]
    if first + width > len(shape):
        raise ShapeError(
            f"{call.op_type} addresses more dimensions than there are",
            where=f"node {call.name!r}",
            why=f"indices of {width} coordinates after {first} batch dimensions, for data of shape {list(shape)}",
            remedy="export the model again; the file does not follow the ONNX operator definition",
        )
    return np.array(shape[first : first + width])


def _reduction(call: OnnxCall) -> str:
    name = call.text("reduction", "none")
    if name not in _REDUCTIONS:
        raise call.unsupported(f"reduction {name!r} is none of {sorted(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def _positive(call: OnnxCall, extents: np.ndarray) -> relax.Expr:
    """Indices with those that count from the end made positive; constant ones are checked."""
    indices = call.data(1)
    array = constant_array(indices)
    dtype = dtype_of(indices)
    if array is None:
        wrapped = relax.op.add(indices, constant(extents.astype(dtype)))
        return relax.op.where(relax.op.less(indices, relax.const(0, dtype)), wrapped, indices)
    if not ((-extents <= array) & (array < extents)).all():
        raise ShapeError(
            f"{call.op_type} reaches beyond its tensor",
            where=f"node {call.name!r}",
            why=f"indices {array.min()}..{array.max()} of a dimension of {extents.tolist()}",
            remedy="export the model again; the file does not follow the ONNX operator definition",
        )
    return constant(np.where(array < 0, array + extents, array).astype(array.dtype))


def _inside(call: OnnxCall, extents: np.ndarray) -> relax.Expr:
    """``_positive``, and indices from run time clamped to the data: the ops below do not check them."""
    positive = _positive(call, extents)
    if constant_array(call.data(1)) is not None:
        return positive
    dtype = dtype_of(call.data(1))
    return relax.op.minimum(relax.op.maximum(positive, relax.const(0, dtype)), constant((extents - 1).astype(dtype)))


CONVERTERS: dict[str, Converter] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
