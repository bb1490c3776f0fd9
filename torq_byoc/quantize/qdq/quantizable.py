"""A float model in the form that the quantizer takes: float weights, and an opset that has the nodes it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import version_converter

from torq_byoc.errors import QuantizationError
from torq_byoc.frontend.float_weights import StoredWeights, float_weights, stored_weights
from torq_byoc.quantize.bias_correction import InputMeans
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph

OPSETS = {"int8": 13, "int16": 21}
"""The first with scales a channel, and the first with codes of 16 bits."""

Watch = Callable[[Mapping[str, np.ndarray]], None]
"""Receives all tensors of a calibration sample."""


@dataclass(frozen=True, eq=False)
class Quantizable:
    """A prepared model ready to be quantized.

    Attributes:
        model: its weights are floats, its opset has QDQ of the types wanted.
        stored: weights that came as integers.
        means: of what layers with weights read, where biases are to be corrected; filled by calibration.
        floats: names of operators that stay float, whatever a plan says.
        methods: calibrators of tensors that have one of their own, unless a plan gives them another.
        wide: names of tensors with codes of 16 bits, unless a plan gives them others.
    """

    model: onnx.ModelProto
    stored: Mapping[str, StoredWeights]
    means: InputMeans | None = None
    floats: frozenset[str] = frozenset()
    methods: Mapping[str, str] = field(default_factory=dict)
    wide: frozenset[str] = frozenset()

    def graph(self, plan: PrecisionPlan | None = None) -> IntegerGraph:
        """What is known of the model under a plan."""
        return IntegerGraph(self.model, (plan or PrecisionPlan()).with_wide(self.wide), self.floats)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """What has to see the tensors of every calibration sample."""
        return (self.means.add,) if self.means else ()


def quantizable(
    model: onnx.ModelProto,
    opset: int,
    correct_biases: bool = True,
    floats: Iterable[str] = (),
    methods: Mapping[str, str] | None = None,
    wide: Iterable[str] = (),
) -> Quantizable:
    """A prepared model with floats for weights and an opset of at least ``opset``.

    Args:
        model: the model.
        opset: least version of the standard operators.
        correct_biases: see ``bias_correction``.
        floats: names of operators that stay float.
        methods: calibrators of tensors that have one of their own.
        wide: names of tensors with codes of 16 bits.

    Raises:
        QuantizationError: the opset cannot be raised.
    """
    ready = _with_opset(float_weights(model), opset)
    means = InputMeans(ready) if correct_biases else None
    return Quantizable(ready, stored_weights(model), means, frozenset(floats), methods or {}, frozenset(wide))


def _with_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    current = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if current >= version:
        return model
    try:
        return version_converter.convert_version(model, version)
    except RuntimeError as error:
        raise QuantizationError(
            f"the model cannot be raised from opset {current} to {version}, which per-channel QDQ needs",
            where=model.graph.name,
            why=str(error).splitlines()[0],
            remedy="export the model with a newer opset",
        ) from error
