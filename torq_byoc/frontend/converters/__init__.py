"""Our own ONNX -> Relax converters; an operator that is not listed here takes TVM's.

Each module holds one family and a ``CONVERTERS`` table.  A converter is a function of an
:class:`~torq_byoc.frontend.converters.support.OnnxCall` that returns a Relax expression.
"""

from torq_byoc.frontend.converters import (
    arithmetic,
    convolution,
    einsum,
    elementwise,
    generation,
    indexing,
    integer_products,
    normalization,
    quantization,
    reduction,
    resize,
    shapes,
)
from torq_byoc.frontend.converters.refusals import REFUSALS
from torq_byoc.frontend.converters.support import Converter, OnnxCall

CONVERTERS: dict[str, Converter] = {
    **arithmetic.CONVERTERS,
    **convolution.CONVERTERS,
    **einsum.CONVERTERS,
    **elementwise.CONVERTERS,
    **generation.CONVERTERS,
    **indexing.CONVERTERS,
    **integer_products.CONVERTERS,
    **reduction.CONVERTERS,
    **shapes.CONVERTERS,
    **resize.CONVERTERS,
    **normalization.CONVERTERS,
    **quantization.CONVERTERS,
}

__all__ = ["CONVERTERS", "REFUSALS", "Converter", "OnnxCall"]
