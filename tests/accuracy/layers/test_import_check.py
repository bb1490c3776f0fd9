"""Preparation that changes results shows at the node where it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.accuracy.models import chain, data, stages
from torq_byoc.accuracy.check import check
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.import_check import ImportCheck
from torq_byoc.accuracy.references.float_reference import OnnxRuntime
from torq_byoc.frontend import prepare

FEEDS = {"x": data(1, seed=5)["x"]}


def _changed(model: onnx.ModelProto, name: str, change) -> onnx.ModelProto:
    """The model with one constant changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for constant in copy.graph.initializer:
        if constant.name == name:
            constant.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(constant)), name))
    return copy


def test_a_sound_preparation_changes_nothing():
    imports = ImportCheck(OnnxRuntime(chain()), prepare(chain()))
    imports.take(FEEDS)
    assert imports.deviations() == ()


@pytest.mark.parametrize(
    ("constant", "change", "tensor"),
    [
        ("b1", lambda bias: bias + np.float32(0.1), "c1"),
        ("w2", lambda weights: weights[:, ::-1].copy(), "c2"),
        ("fc", lambda weights: weights * np.float32(1.01), "y"),
    ],
)
def test_a_change_shows_where_it_is_made(constant, change, tensor):
    imports = ImportCheck(OnnxRuntime(chain()), _changed(prepare(chain()), constant, change))
    imports.take(FEEDS)
    found = imports.deviations()
    assert [(one.stage, one.tensor) for one in found if one.local] == [(Stage.IMPORT, tensor)]
    assert all(not one.local for one in found[1:])


def test_it_is_a_reason_not_to_ship():
    model = stages("chain")
    broken = _changed(model.prepared, "b1", lambda bias: bias + np.float32(0.5))
    result = check(replace(model, prepared=broken), data(2, seed=5))
    assert not result.passed
    assert (result.cause.stage, result.cause.node) == (Stage.IMPORT, "conv1")
    assert (result.misses[0].section, result.misses[0].where) == ("program", "conv1")
