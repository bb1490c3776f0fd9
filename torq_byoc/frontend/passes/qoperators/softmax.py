"""QLinearSoftmax, which names the operator set whose Softmax it means.

Up to 12 a Softmax ran over all dimensions from its axis on; since 13 it runs over that axis alone.  The model's own
operator set may lie on the other side of that change.
"""

from __future__ import annotations

import numpy as np

from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter

_ONE_AXIS = 13


def _softmax(r: Rewriter) -> None:
    meant = r.attribute("opset", _ONE_AXIS)
    one_axis = meant >= _ONE_AXIS
    axis = int(r.attribute("axis", -1 if one_axis else 1))
    source = r.triple(0)
    if one_axis == (r.editor.opset >= _ONE_AXIS):
        result = r.emit("Softmax", [source], axis=axis)
    elif one_axis:
        result = _over_one_axis(r, source, axis)
    else:
        result = _over_the_rest(r, source, axis)
    r.finish_quantized(result, 3, 4)


def _over_one_axis(r: Rewriter, source: str, axis: int) -> str:
    """With the old operator: the axis goes last, where it is all that is left."""
    rank = r.rank(0)
    if rank is None:
        raise r.refusal(f"the rank of {r.name(0)!r} is not known")
    if not -rank <= axis < rank:
        raise r.refusal(f"axis {axis} is none of the {rank} dimensions of its data")
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    swapped = r.emit("Transpose", [source], perm=order)
    return r.emit("Transpose", [r.emit("Softmax", [swapped], axis=rank - 1)], perm=order)


def _over_the_rest(r: Rewriter, source: str, axis: int) -> str:
    """With the new operator: a matrix whose rows are all that is normalized together."""
    shape = r.editor.static_shape(r.name(0))
    if shape is None:
        raise r.refusal(f"the shape of {r.name(0)!r} is not known")
    rows = r.emit("Softmax", [r.emit("Flatten", [source], axis=axis)], axis=-1)
    return r.emit("Reshape", [rows, r.constant(np.array(shape, np.int64), "shape")])


REWRITES: dict[tuple[str, str], Rewrite] = {("com.microsoft", "QLinearSoftmax"): Rewrite(_softmax, needs=(0, 1, 3))}
