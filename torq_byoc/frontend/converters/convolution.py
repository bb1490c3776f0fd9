"""Conv and ConvTranspose: TVM's converters, with the bias added in one fixed form."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as stock

from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, constant_array


def with_bias(converter: type[stock.OnnxOpConverter]) -> Converter:
    """The stock convolution without bias, then ``add(conv, b)``; b is a [1, O, 1, ...] constant or ``reshape(b)``."""

    def convert(call: OnnxCall) -> relax.Expr:
        bias = call.input(2)
        result = call.builder.normalize(call.stock(converter, {} if bias is None else {2: None}))
        if bias is None:
            return result
        shape = (1, int(result.ty.shape.values[1])) + (1,) * (result.ty.ndim - 2)
        value = constant_array(bias)
        if value is not None:
            return relax.op.add(result, constant(value.reshape(shape)))
        return relax.op.add(result, relax.op.reshape(bias, shape))

    return convert


CONVERTERS: dict[str, Converter] = {
    "Conv": with_bias(stock.Conv),
    "ConvTranspose": with_bias(stock.ConvTranspose),
}
