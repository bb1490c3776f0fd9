"""Forms of operators that TVM's own converters would import with other results than ONNX defines: refused by name."""

from __future__ import annotations

from collections.abc import Callable

from torq_byoc.frontend.converters.support import DATA_DEPENDENT, OnnxCall, constant_array, dtype_of


def _always(reason: str) -> Callable[[OnnxCall], str]:
    return lambda call: reason


def _dropout(call: OnnxCall) -> str:
    """Dropout is the identity unless it is told to train with a ratio above 0."""
    if call.input(2) is None:
        return ""
    training, ratio = constant_array(call.input(2)), constant_array(call.input(1))
    idle = training is not None and not training.any()
    never = call.input(1) is not None and ratio is not None and not ratio.any()
    return "" if idle or never else "in training mode it draws random numbers"


def _batch_normalization(call: OnnxCall) -> str:
    return "training_mode computes statistics of the batch" if call.attrs.get("training_mode", 0) else ""


def _roi_align(call: OnnxCall) -> str:
    return "mode max has no Relax form" if call.text("mode", "avg") != "avg" else ""


def _max_unpool(call: OnnxCall) -> str:
    return "an explicit output shape has no Relax form" if call.input(2) is not None else ""


def _top_k(call: OnnxCall) -> str:
    dtype = dtype_of(call.data())
    return "" if dtype in _SORTED else f"it sorts {dtype}; only {', '.join(sorted(_SORTED))} can be"


_SORTED = frozenset({"float32", "float64", "float16", "int32", "int64", "uint8", "int8"})

SIZED_BY_DATA = frozenset({"Compress", "NonZero", "Range", "Unique"})
"""Operators whose results have a size that their data decide: they work on constants only, when compiling."""

NEVER_COMPUTED = frozenset({"NonMaxSuppression"})
"""One more of them, which costs too much to be computed when compiling."""

REFUSALS: dict[str, Callable[[OnnxCall], str]] = {
    "BatchNormalization": _batch_normalization,
    "Dropout": _dropout,
    "MaxUnpool": _max_unpool,
    "NonMaxSuppression": _always(DATA_DEPENDENT),
    "NonZero": _always(DATA_DEPENDENT),
    "RoiAlign": _roi_align,
    "TopK": _top_k,
    "Unique": _always(DATA_DEPENDENT),
}
"""Operator -> why this call of it is refused; empty when it is not."""
