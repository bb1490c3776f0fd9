"""Every request that has no effect on a model is said to have none, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.compilation.options import Options
from torq_byoc.compilation.unused_requests import unused_requests
from torq_byoc.quantize.planning.target import PrecisionTarget
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeOverride

DATA = {"x": np.zeros((1, 1))}


@pytest.mark.parametrize("precision", ["bf16", "quantized", "mixed"])
@pytest.mark.parametrize(
    ("request_", "note"),
    [
        ({"calibration_method": "mse"}, "nothing is calibrated: the method mse has no effect"),
        (
            {"disabled_rewrites": ("bias_correction", "scale_outputs", "bias_correction")},
            "nothing is quantized here: that rewrites are disabled (bias_correction, scale_outputs) has no effect",
        ),
    ],
)
def test_what_is_about_quantization_has_no_effect_without_it(precision, request_, note) -> None:
    assert unused_requests(precision, Options(**request_), calibrated=False) == (note,)
    assert unused_requests("int8", Options(calibration=DATA, **request_), calibrated=True) == ()


@pytest.mark.parametrize(
    ("precision", "reason"),
    [
        ("bf16", "bf16 needs no activation ranges"),
        ("quantized", "the model keeps its own scales"),
        ("mixed", "the model keeps its own scales"),
    ],
)
def test_data_that_nothing_is_calibrated_with_is_noted(precision, reason) -> None:
    (note,) = unused_requests(precision, Options(calibration=DATA), calibrated=False)
    assert note == f"{reason}: the calibration data is not used"
    assert unused_requests(precision, Options(), calibrated=False) == ()


def test_the_types_of_a_quantized_model_are_its_own() -> None:
    (note,) = unused_requests("quantized", Options(precision="int16"), calibrated=False)
    assert note == "the model is quantized and keeps its own types: precision int16 has no effect"


def test_a_plan_and_a_target_are_for_mixed_precision() -> None:
    options = Options(calibration=DATA, plan=PrecisionPlan(), target=PrecisionTarget(sqnr=30.0))
    notes = unused_requests("int8", options, calibrated=True)
    assert [note.split(" has")[0] for note in notes] == ["the precision plan", "the target"]
    assert unused_requests("mixed", options, calibrated=True) == ()


def test_a_plan_names_the_methods_of_its_ranges() -> None:
    options = Options(calibration=DATA, plan=PrecisionPlan(), calibration_method="mse")
    assert unused_requests("mixed", options, calibrated=True) == (
        "the precision plan names the ranges' methods: the method mse has no effect",
    )
    assert unused_requests("mixed", Options(calibration=DATA, calibration_method="mse"), calibrated=True) == ()


def test_what_a_disabled_pass_takes_from_a_schedule_is_said() -> None:
    record = DecisionRecord(
        {"a": NodeOverride(split_axis=(1,), buffers=2), "b": NodeOverride(split_axis=(None,), buffers=1)},
        {"t": True},
        (GroupDecision(("c", "d"), 2, 4, (1, 1), 2),),
    )
    passes = ("fusion", "residency", "slice-split", "double-buffering", "prefetch")
    notes = unused_requests("int8", Options(decisions=record, disabled_passes=passes), calibrated=True)
    assert [note.split(":")[0] for note in notes] == [f"the pass {name} is disabled" for name in passes[:4]]
    assert unused_requests("int8", Options(decisions=record, disabled_passes=("prefetch",)), calibrated=True) == ()
    plain = DecisionRecord({"b": record.nodes["b"]}, {"t": False}, ())
    assert unused_requests("int8", Options(decisions=plain, disabled_passes=passes), calibrated=True) == ()
