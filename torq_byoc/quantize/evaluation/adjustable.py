"""A QDQ model whose scales and zero points can be others in every run: what a change of ranges does, at little cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from torq_byoc.quantize.evaluation import float64
from torq_byoc.quantize.evaluation.evaluator import Arrays, Evaluator


class DequantizeLinear(float64.DequantizeLinear):
    """In float32, as all the rest of the model."""

    real = np.float32


class QuantizeLinear(float64.QuantizeLinear):
    """In float32, as all the rest of the model."""

    real = np.float32


class AdjustableEvaluator:
    """Runs a QDQ model in float32, many times.

    Weights keep the codes and scales that they have, so what they contribute is the same in all runs.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        self._constants = float64.take_dequantized_constants(changed, np.float32)
        self._evaluator = Evaluator(changed, (DequantizeLinear, QuantizeLinear))

    def outputs(self, feeds: Mapping[str, np.ndarray], parameters: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name.

        Args:
            feeds: the model's inputs.
            parameters: scales and zero points by the names of the constants whose place they take.
        """
        return self._evaluator.outputs({**self._constants, **parameters, **feeds})
