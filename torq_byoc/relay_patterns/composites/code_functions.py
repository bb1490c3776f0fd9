"""Element-wise functions of quantized tensors: the cheapest program that gives every code its result.

An 8-bit tensor has 256 codes, so a program is tried on all of them.  From cheapest to dearest: one ACT pass with a
clip (``code_lines``), a product of the tensor with such a pass (``gated_codes``), a look-up.  16-bit tensors always
take a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import gated_codes, integer_activation, tables
from torq_byoc.relay_patterns.composites.code_lines import find_line
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.integer_activation import RealFunction
from torq_byoc.relay_patterns.quant_params import QuantParams


class Program(Protocol):
    """Nodes that map every code of an 8-bit tensor to a result."""

    def cycles(self, config: NpuConfig) -> float:
        """ACT cycles a result."""

    def emit(self, e: Emitter, x: str, source: QuantParams, out: QuantParams) -> str:
        """Append the nodes; returns the tensor that they make of x."""


@dataclass(frozen=True, eq=False)
class Line:
    """One ACT pass."""

    rescale: Rescale

    def cycles(self, config: NpuConfig) -> float:
        """ACT cycles a result."""
        return 1.0 / config.act_width(DType.INT8, None)

    def emit(self, e: Emitter, x: str, source: QuantParams, out: QuantParams) -> str:
        """Append the pass."""
        del source
        return e.act(x, out.dtype, self.rescale, out=out)


@dataclass(frozen=True, eq=False)
class LookUp:
    """One table; ``results`` of all codes, ascending."""

    results: np.ndarray

    def cycles(self, config: NpuConfig) -> float:
        """ACT cycles a result."""
        return 1.0 / config.act_width(DType.INT8, None, table=True)

    def emit(self, e: Emitter, x: str, source: QuantParams, out: QuantParams) -> str:
        """Append the look-up."""
        index = tables.exact_index(source.dtype.integer_range[0])
        return e.table(x, tables.exact_table(self.results), index, out.dtype, out=out)


def lower(e: Emitter, x: str, function: RealFunction, out: QuantParams, config: NpuConfig) -> str:
    """Nodes that apply ``function`` to x.

    Raises:
        QuantizationError: the types are not int8, uint8 or int16, or x has no scale.
    """
    source = integer_activation.quantization(e, x)
    if source.dtype.size > 1 or out.dtype.size > 1:
        return integer_activation.lower(e, x, function, out)
    real = integer_activation.at_every_code(function, source)
    results = out.quantize(real).astype(np.int64)
    return cheapest(results, source, out, config, real).emit(e, x, source, out)


def find_pass(results: np.ndarray, source: QuantParams, out: QuantParams) -> Line | None:
    """The one ACT pass that gives exactly ``results``, if there is one."""
    first, last = source.dtype.integer_range
    rescale = find_line(np.arange(first, last + 1), results, out.dtype)
    return None if rescale is None else Line(rescale)


def cheapest(
    results: np.ndarray, source: QuantParams, out: QuantParams, config: NpuConfig, real: np.ndarray | None = None
) -> Program:
    """The cheapest program for an 8-bit tensor.

    Args:
        results: of all codes, ascending: int64[256].
        source, out: quantization of the tensor and of the result.
        config: the machine.
        real: the real function that the results round; without it they are exact by definition.
    """
    line = find_pass(results, source, out)
    if line is not None:
        return line
    product = gated_codes.find_exact(results, source, out) if real is None else gated_codes.find(real, source, out)
    programs: list[Program] = [LookUp(results)]
    if product is not None:
        programs.append(product)
    return min(programs, key=lambda program: program.cycles(config))
