"""Advice fits what the tensor is already, and what the data is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.accuracy.models import data, stages
from torq_byoc.accuracy.causes.remedies import CARRIES_SCALES, remedy, remedy_of_many
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.code_use import CodeUse
from torq_byoc.accuracy.layers.layer_check import LayerCheck, LayerRow

SATURATED = CodeUse(saturated=0.02, zeroed=0.0, unused=0.0)
INNER = CodeUse(saturated=0.0, zeroed=0.0, unused=0.0)
OUTLIERS = CodeUse(saturated=0.0, zeroed=0.1, unused=0.9)


def _row(tensor: str, use: CodeUse, precision: str = "int8", model: str = "chain") -> LayerRow:
    check = LayerCheck(stages(model, precision))
    check.take(data(1, seed=5))
    row = next(row for row in check.rows() if row.layer.tensor == tensor)
    return replace(row, use=use)


@pytest.mark.parametrize("use", [SATURATED, INNER, OUTLIERS])
@pytest.mark.parametrize(("precision", "dtype"), [("int8", np.int8), ("int16", np.int16)])
def test_16_bits_are_for_tensors_that_have_8(precision, dtype, use):
    row = _row("r1", use, precision)
    assert row.layer.codes.dtype == dtype
    advice = remedy(Stage.QUANTIZATION, row, precision)
    assert ("16 bits (--precision" in advice) == (precision == "int8")
    assert ("--precision bf16" in advice) == (precision == "int16")


def test_a_concatenation_of_16_bits_is_split():
    row = _row("both", INNER, "int16", "detector")
    advice = remedy(Stage.QUANTIZATION, row, "int16")
    assert "split the concatenation concat" in advice and "16 bits (" not in advice


@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_an_input_in_another_range_is_the_fault_of_the_data(precision):
    row = _row("x", SATURATED, precision)
    advice = remedy(Stage.QUANTIZATION, row, precision)
    assert advice.startswith("give data and calibration in one range: 2.00% of the input x lie outside")
    assert remedy_of_many([_row("r1", OUTLIERS, precision), row], precision) == advice
    assert "the scales that the model carries" in remedy(Stage.QUANTIZATION, row, CARRIES_SCALES)


def test_a_few_saturated_values_of_an_input_are_outliers():
    advice = remedy(Stage.QUANTIZATION, _row("x", replace(SATURATED, saturated=0.005)), "int8")
    assert advice.startswith("calibrate with more samples")


def test_what_helps_many_layers():
    rows = [_row("r1", INNER)]
    assert "mixed" in remedy_of_many(rows, "int8")
    assert "16 bits" not in remedy_of_many(rows, "int16")
