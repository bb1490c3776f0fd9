"""Integer clip, relu, abs, neg and leaky relu: one or two passes, several times faster than a look-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from torq_byoc.relay_patterns.composites import prelu
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import to_codes
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams


def clip(e: Emitter, x: str, out: QuantParams, low: float = -math.inf, high: float = math.inf) -> str:
    """Requantize, then bound by the codes of ``low`` and ``high``."""
    return _pass(e, x, out, "ACT", low, high)


def _pass(e: Emitter, x: str, out: QuantParams, mode: str, low: float = -math.inf, high: float = math.inf) -> str:
    source = quantization(e, x)
    rescale = to_codes(source.scale / out.scale, out, bias=-source.zero_point, where=e.origin)
    bounds = [float(bound if math.isinf(bound) else out.quantize(bound)) for bound in (low, high)]
    return e.act(x, out.dtype, replace(rescale, clip_min=bounds[0], clip_max=bounds[1]), mode=mode, out=out)


def leaky_relu(e: Emitter, x: str, out: QuantParams, alpha: float = 0.01) -> str:
    """PRelu with one slope."""
    return prelu.lower(e.builder, x, np.array([alpha]), out, e.origin)


RECIPES: dict[str, Callable[..., str]] = {
    "abs": lambda e, x, out: _pass(e, x, out, "ABS"),
    "clip": clip,
    "leaky_relu": leaky_relu,
    "neg": lambda e, x, out: _pass(e, x, out, "NEG"),
    "relu": lambda e, x, out: clip(e, x, out, 0.0),
}
"""Name -> recipe(emitter, x, out, **attributes)."""
