"""Operators whose results depend on shapes and parameters more than on data: constants where nothing else is known."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper, numpy_helper
from tvm import relax

from torq_byoc.frontend.converters.support import (
    DATA_DEPENDENT,
    Converter,
    OnnxCall,
    constant,
    constant_array,
    dtype_of,
    static_shape,
)
from torq_byoc.frontend.geometry import normalize_axis


def shape_of(call: OnnxCall) -> relax.Expr:
    """Shape -> a constant."""
    shape = static_shape(call.data(), call)
    return constant(np.array(shape[call.attrs.get("start", 0) : call.attrs.get("end", len(shape))], np.int64))


def size_of(call: OnnxCall) -> relax.Expr:
    """Size -> a constant."""
    return constant(np.array(math.prod(static_shape(call.data(), call)), np.int64))


def constant_of_shape(call: OnnxCall) -> relax.Expr:
    """ConstantOfShape -> ``full``; without a value it is float zeros."""
    target = call.constant(0)
    if target is None:
        raise call.unsupported("it has no shape")
    held = call.attrs.get("value")
    value = np.zeros((), np.float32) if held is None else numpy_helper.to_array(held).reshape(())
    return relax.op.full([int(n) for n in target.reshape(-1)], constant(value), str(value.dtype))


def eye_like(call: OnnxCall) -> relax.Expr:
    """EyeLike -> a constant."""
    rows, columns = static_shape(call.data(), call)
    declared = int(call.attrs.get("dtype", 0))
    dtype = helper.tensor_dtype_to_np_dtype(declared) if declared else np.dtype(dtype_of(call.data()))
    return constant(np.eye(rows, columns, int(call.attrs.get("k", 0))).astype(dtype))


def one_hot(call: OnnxCall) -> relax.Expr:
    """OneHot -> ``where(equal(indices, range), on, off)``; negative indices count from the end."""
    depth = call.constant(1)
    if depth is None:
        raise call.unsupported("it names no depth")
    count = int(depth.reshape(-1)[0])
    indices = relax.op.astype(call.data(), "int64")
    shape = static_shape(call.data(), call)
    axis = normalize_axis(int(call.attrs.get("axis", -1)), len(shape) + 1, call.name)
    negative = relax.op.less(indices, relax.const(0, "int64"))
    wrapped = relax.op.where(negative, relax.op.add(indices, relax.const(count, "int64")), indices)
    spread = relax.op.reshape(wrapped, (*shape[:axis], 1, *shape[axis:]))
    classes = np.arange(count, dtype=np.int64).reshape((count,) + (1,) * (len(shape) - axis))
    off, on = (relax.op.take(call.data(2), relax.const(i, "int64"), 0, mode="clip") for i in (0, 1))
    return relax.op.where(relax.op.equal(spread, constant(classes)), on, off)


def compress(call: OnnxCall) -> relax.Expr:
    """Compress by a constant condition -> ``take`` of the chosen positions."""
    condition = constant_array(call.data(1))
    if condition is None:
        raise call.unsupported(DATA_DEPENDENT)
    positions = np.flatnonzero(condition)
    x, axis = call.data(), call.attrs.get("axis")
    if axis is None:
        return relax.op.take(relax.op.reshape(x, (-1,)), constant(positions), 0, mode="clip")
    axis = normalize_axis(int(axis), len(static_shape(x, call)), call.name)
    return relax.op.take(x, constant(positions), axis, mode="clip")


def identity(call: OnnxCall) -> relax.Expr:
    """Identity -> its input; a tensor without elements -> ``zeros``, as TVM stores no constant of that size."""
    array = constant_array(call.data())
    return relax.op.zeros(array.shape, str(array.dtype)) if array is not None and not array.size else call.data()


CONVERTERS: dict[str, Converter] = {
    "Shape": shape_of,
    "Size": size_of,
    "ConstantOfShape": constant_of_shape,
    "Compress": compress,
    "EyeLike": eye_like,
    "OneHot": one_hot,
    "Identity": identity,
}
