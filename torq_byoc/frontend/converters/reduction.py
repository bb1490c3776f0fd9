"""Running sums, and extremes of truth values."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as stock

from torq_byoc.frontend.converters.support import Converter, OnnxCall, dtype_of, static_shape
from torq_byoc.frontend.geometry import normalize_axis


def cumulative_sum(call: OnnxCall) -> relax.Expr:
    """CumSum -> ``cumsum``, between two ``flip`` when it runs backwards."""
    x = call.data()
    axis_value = call.constant(1)
    if axis_value is None:
        raise call.unsupported("it names no axis")
    axis = normalize_axis(int(axis_value.reshape(-1)[0]), len(static_shape(x, call)), call.name)
    exclusive, backwards = (bool(call.attrs.get(name, 0)) for name in ("exclusive", "reverse"))
    if not backwards:
        return relax.op.cumsum(x, axis, exclusive=exclusive)
    return relax.op.flip(relax.op.cumsum(relax.op.flip(x, axis), axis, exclusive=exclusive), axis)


def extreme(converter: type[stock.OnnxOpConverter]) -> Converter:
    """ReduceMax or ReduceMin: the stock form; truth values as the integers 0 and 1."""

    def convert(call: OnnxCall) -> relax.Expr:
        x = call.data()
        if dtype_of(x) != "bool":
            return call.stock(converter)
        integers = call.builder.normalize(relax.op.astype(x, "uint8"))
        result = call.builder.normalize(call.stock(converter, {0: integers}))
        return relax.op.astype(result, "bool")

    return convert


CONVERTERS: dict[str, Converter] = {
    "CumSum": cumulative_sum,
    "ReduceMax": extreme(stock.ReduceMax),
    "ReduceMin": extreme(stock.ReduceMin),
}
