"""Element-wise functions of quantized tensors: the cheapest program that gives every code its result.

An 8-bit tensor has 256 codes, so a program is tried on all of them.  From cheapest to dearest: one ACT pass with a
clip (``code_lines``), a product of the tensor with such a pass (``gated_codes``), a look-up.  16-bit tensors always
take a table.
"""

from __future__ import annotations

import numpy as np

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns.composites import gated_codes, integer_activation
from torq_byoc.relay_patterns.composites.code_lines import find_line
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.integer_activation import RealFunction
from torq_byoc.relay_patterns.quant_params import QuantParams


def lower(e: Emitter, x: str, function: RealFunction, out: QuantParams, config: NpuConfig) -> str:
    """Nodes that apply ``function`` to x.

    Raises:
        QuantizationError: the types are not int8, uint8 or int16, or x has no scale.
    """
    source = integer_activation.quantization(e, x)
    if source.dtype.size > 1 or out.dtype.size > 1:
        return integer_activation.lower(e, x, function, out)
    first, last = source.dtype.integer_range
    real = integer_activation.at_every_code(function, source)
    line = find_line(np.arange(first, last + 1), out.quantize(real).astype(np.int64), out.dtype)
    if line is not None:
        return e.act(x, out.dtype, line, out=out)
    gated = gated_codes.find(real, source, out)
    if gated is not None and gated.cycles(config) < 1.0 / config.act_width(source.dtype, None, table=True):
        return gated.emit(e, x, source, out)
    return integer_activation.lower(e, x, function, out)
