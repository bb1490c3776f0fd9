"""Our own ONNX -> Relax converters; an operator that is not listed here takes TVM's.

Each module holds one family and a ``CONVERTERS`` table.  A converter is a function of an
:class:`~torq_byoc.frontend.converters.support.OnnxCall` that returns a Relax expression.
"""

from torq_byoc.frontend.converters import convolution, elementwise, normalization, quantization, resize, shapes
from torq_byoc.frontend.converters.support import Converter, OnnxCall

CONVERTERS: dict[str, Converter] = {
    **convolution.CONVERTERS,
    **elementwise.CONVERTERS,
    **shapes.CONVERTERS,
    **resize.CONVERTERS,
    **normalization.CONVERTERS,
    **quantization.CONVERTERS,
}

__all__ = ["CONVERTERS", "Converter", "OnnxCall"]
