"""The hard models: what they are, and that compilations reach the goals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.accuracy import onnxruntime_int8
from benchmarks.accuracy.sets import SETS, StressSet, dead_channels, depthwise_spread, detector_head, heavy_tail
from benchmarks.accuracy.stress import GOALS, Goal, measure, table_of
from torq_byoc.frontend import prepare
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.judge import Judge


def weights(stress: StressSet, kind: str) -> list[np.ndarray]:
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in stress.model.graph.initializer}
    return [constants[node.input[1]] for node in stress.model.graph.node if node.op_type == kind]


@pytest.mark.parametrize("make", SETS)
def test_draws_are_seeded_and_differ(make) -> None:  # noqa: ANN001
    first, again, other = make(4), make(4), make(5)
    onnx.checker.check_model(first.model, full_check=True)
    assert first.name in GOALS
    assert first.model.SerializeToString() == again.model.SerializeToString() != other.model.SerializeToString()
    data, fresh = first.data(3, 1)["x"], first.data(3, 2)["x"]
    np.testing.assert_array_equal(data, again.data(3, 1)["x"])
    assert data.shape == (3, *fresh.shape[1:]) and not np.isin(data.reshape(-1)[:50], fresh).any()


def test_models_are_hard_for_the_reasons_they_are_named_for() -> None:
    stress = detector_head(0)
    judge = Judge(prepare(stress.model), samples(prepare(stress.model), stress.data(2, 0)))
    box, scores = ([part.of(run["y"]) for run in judge.wanted] for part in judge.parts)
    assert np.max(box) > 300 and 0.005 < np.mean(scores) < 0.05
    gains = np.abs(weights(depthwise_spread(0), "Conv")[1]).max(axis=(1, 2, 3))
    assert gains.max() > 300 * gains.min()
    sizes = np.sort(np.abs(weights(dead_channels(0), "Conv")[0]).max(axis=(1, 2, 3)))
    assert sizes[1] < 1e-8 and sizes[2] > 0.05


CASES = [
    *((make, 7, GOALS[f"M{index}"][0]) for index, make in enumerate(SETS[:5], 1)),
    *((heavy_tail, 3, goal) for goal in GOALS["M6"]),  # of draw 7 a fresh value is ten times all calibration data
]


@pytest.mark.parametrize(("make", "draw", "goal"), CASES)
def test_a_compilation_reaches_its_goal(make, draw: int, goal: Goal) -> None:  # noqa: ANN001
    row = measure(make(draw), draw, goal)
    assert row.identical
    assert (row.precision == "mixed") == bool(row.int16)
    assert row.reached, row
    assert row.here > row.onnxruntime + 1.0
    assert table_of([row]).row_count == 1


def test_onnxruntimes_models_are_int8_with_a_scale_a_channel() -> None:
    stress = dead_channels(0)
    model = prepare(stress.model)
    quantized = onnxruntime_int8.quantized(stress.model, list(samples(model, stress.data(2, 0))), "minmax")
    kinds = {tensor.data_type for tensor in quantized.graph.initializer if tensor.name.endswith("zero_point")}
    assert onnx.TensorProto.INT8 in kinds and onnx.TensorProto.UINT8 not in kinds
    assert any(list(tensor.dims) == [8] and "scale" in tensor.name for tensor in quantized.graph.initializer)
