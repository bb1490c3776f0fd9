"""What the rules look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx

from torq_byoc.accuracy.lint.products import QuantizedProduct, quantized_products
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator, evaluator_of

Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model before code generation, with the data that it is calibrated and judged on.

    Attributes:
        prepared: the float model (or the quantized one that the user gave), static and folded.
        precise: its QDQ form; the same model where nothing was quantized here.
        evaluation: samples that the model is judged on, one feed each.
        calibration: samples that its ranges come from; empty when there were none.
        labels: the right class of every evaluation sample, where known.
    """

    prepared: onnx.ModelProto
    precise: onnx.ModelProto
    evaluation: Sequence[Feed] = ()
    calibration: Sequence[Feed] = ()
    labels: np.ndarray | None = field(default=None)

    @property
    def carries_scales(self) -> bool:
        """Whether the model came with the scales of its results."""
        return any(node.op_type == "QuantizeLinear" for node in self.prepared.graph.node)

    @cached_property
    def products(self) -> tuple[QuantizedProduct, ...]:
        """Nodes that multiply by constant integer weights."""
        return quantized_products(self.precise)

    @cached_property
    def evaluator(self) -> Evaluator | Float64Evaluator:
        """Runs the prepared model in float."""
        return evaluator_of(self.prepared)

    def answers(self, feeds: Sequence[Feed]) -> np.ndarray:
        """The class with the largest score of the first output on each of some samples, int64 [samples]."""
        scores = [next(iter(self.evaluator.outputs(feed).values())) for feed in feeds]
        return np.array([int(score.reshape(-1).argmax()) for score in scores], np.int64)
