"""Values that quantization defines no code for: NaN, such as 0 / 0 where a divisor is rounded to zero."""

from __future__ import annotations

import onnx

from torq_byoc.quantize.evaluation.evaluator import Arrays

MOST_NAMES = 6
"""Tensors that a sentence names."""


class UndefinedCodes:
    """Counts NaN in what a QDQ model quantizes.

    QDQ semantics in float64, the NPU and the CPU part all give NaN the code of zero, so that figures stay comparable;
    onnxruntime gives it the lowest code.

    Args:
        model: its quantizations in float.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._names = tuple(
            dict.fromkeys(node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear")
        )
        self._counts: dict[str, int] = {}

    def take(self, tensors: Arrays) -> None:
        """One sample: tensors by name."""
        for name in self._names:
            values = tensors.get(name)
            count = 0 if values is None else int((values != values).sum())
            if count:
                self._counts[name] = self._counts.get(name, 0) + count

    def remarks(self) -> tuple[str, ...]:
        """What there is to say, as a sentence."""
        if not self._counts:
            return ()
        places = [f"{name} ({count})" for name, count in self._counts.items()]
        named = ", ".join(places[:MOST_NAMES]) + (", ..." if len(places) > MOST_NAMES else "")
        return (
            f"values that are quantized are NaN, for which there is no code: here they have that of zero, elsewhere"
            f" another; tensors and numbers of values: {named}",
        )
