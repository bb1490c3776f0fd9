"""``check_model`` takes what the command line does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import torq_byoc
from tests.accuracy.models import chain, data
from tests.quantize.planning.models import residual_mismatch
from torq_byoc import PrecisionPlan, PrecisionTarget, check_model
from torq_byoc.errors import TorqError


@pytest.fixture(scope="module")
def mixed():
    model, values = residual_mismatch()
    return {"model": model, "data": values, "calibration": values, "precision": "mixed", "layer_samples": 1}


@pytest.mark.parametrize(("decibels", "passes"), [(38, True), (150, False)])
def test_a_target(mixed, decibels, passes):
    result = check_model(**mixed, target=PrecisionTarget(sqnr=decibels))
    assert result.passed is passes and result.precision == "mixed"
    assert {miss.section for miss in result.misses} == (set() if passes else {"target"})


def test_a_target_for_integers_has_no_effect_and_is_no_miss():
    calibration = data(8, seed=1)
    target = PrecisionTarget(sqnr=150)
    result = check_model(chain(), data(2, seed=9), precision="int8", calibration=calibration, target=target, effort=0)
    assert result.passed and any("target has no effect" in note for note in result.notes)


def test_a_plan_from_a_file_or_as_it_is(mixed, tmp_path):
    plan = PrecisionPlan(nodes={"c": "bf16"})
    (tmp_path / "p.json").write_text(plan.dumps())
    result = check_model(**mixed, plan=tmp_path / "p.json")
    assert result.layers == check_model(**mixed, plan=plan).layers
    row = next(row for row in result.layers if row.layer.node == "c")
    assert row.layer.codes is None or row.layer.in_bf16


def test_decisions_and_passes(tmp_path):
    """A schedule names what is compiled; one for other nodes is refused as it is by ``compile``."""
    calibration, evaluation = data(8, seed=1), data(2, seed=9)
    given = {"precision": "int8", "calibration": calibration, "effort": 0}
    compiled = torq_byoc.compile(chain(), **given, disable_passes=["fusion"])
    result = check_model(
        chain(), evaluation, **given, schedule=compiled.decisions(), disable_passes=["fusion"], layer_samples=1
    )
    assert result.passed
    other = torq_byoc.compile(residual_mismatch()[0], precision="bf16", effort=0).decisions()
    with pytest.raises(TorqError):
        check_model(chain(), evaluation, **given, schedule=other)
    with pytest.raises(TorqError):
        check_model(chain(), evaluation, **given, disable_passes=["none"])


def test_files_and_arrays_give_the_same(tmp_path):
    onnx.save(chain(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **data(2, seed=9))
    np.savez(tmp_path / "c.npz", **data(8, seed=1))
    by_path = check_model(
        tmp_path / "m.onnx", tmp_path / "d.npz", precision="int8", calibration=tmp_path / "c.npz", effort=0
    )
    by_value = check_model(chain(), data(2, seed=9), precision="int8", calibration=data(8, seed=1), effort=0)
    assert by_path.outputs == by_value.outputs and by_path.layers == by_value.layers
