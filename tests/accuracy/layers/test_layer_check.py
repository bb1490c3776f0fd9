"""Figures of layers, and faults that show at the right layer and stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.accuracy.models import chain, data, stages
from torq_byoc.accuracy.causes.attribution import layer_deviations
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.layer_check import LayerCheck, LayerRow, Steps
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.compilation.options import Options
from torq_byoc.kernels.graph import Node
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.precision_plan import PrecisionPlan

FEEDS = [{"x": data(1, seed=seed)["x"]} for seed in (5, 6)]


def _rows(model: Stages) -> dict[str, LayerRow]:
    check = LayerCheck(model)
    for feeds in FEEDS:
        check.take(feeds)
    return {row.layer.tensor: row for row in check.rows()}


def _local(model: Stages) -> list[Deviation]:
    return [one for one in layer_deviations(_rows(model).values()) if one.local]


def _db(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((found - wanted) ** 2).sum()))


def test_end_to_end_figures_are_of_the_integers():
    model = stages("chain")
    row = _rows(model)["r2"]
    evaluator = Evaluator(model.prepared)
    reference = IntegerReference.over(model.precise, model.parted.module, model.graphs)
    wanted, found = [], []
    for feeds in FEEDS:
        wanted.append(evaluator.tensors(feeds)["r2"].astype(np.float64))
        reference.run(feeds)
        codes = reference.calls[0].tensors[row.layer.place.tensor].astype(np.float64)
        found.append((codes - row.layer.codes.zero_point) * row.layer.codes.scale)
    assert row.on_npu
    assert row.overall.sqnr == pytest.approx(_db(np.concatenate(wanted), np.concatenate(found)), abs=1e-3)
    assert row.rounding.worst <= 1


def test_local_figures_are_of_the_layer_on_the_reference_inputs():
    model = stages("chain")
    rows = _rows(model)
    weights = numpy_helper.to_array(next(t for t in model.prepared.graph.initializer if t.name == "w2"))
    peak = np.abs(weights).max(axis=(1, 2, 3), keepdims=True)
    coarse = np.rint(weights / (peak / 127)) * (peak / 127)
    wanted, alone = [], []
    for feeds in FEEDS:
        tensors = Evaluator(model.prepared).tensors(feeds)
        codes = rows["r1"].layer.codes
        given = codes.dequantize(codes.quantize(tensors["r1"]))
        result = np.zeros((1, 9, 6, 4))
        for y, x in np.ndindex(6, 4):
            result[0, :, y, x] = np.einsum("oikl,ikl->o", coarse, given[0, :, y : y + 3, x : x + 3])
        own = rows["r2"].layer.codes
        alone.append(own.dequantize(own.quantize(np.maximum(result, 0))))
        wanted.append(tensors["r2"].astype(np.float64))
    assert rows["r2"].local.sqnr == pytest.approx(_db(np.concatenate(wanted), np.concatenate(alone)), abs=0.2)


def test_sound_models_have_no_deviation():
    for name, precision in (("chain", "int8"), ("chain", "bf16"), ("chain", "int16")):
        assert _local(stages(name, precision)) == []


def test_a_model_that_carries_its_scales_has_no_quantization_error():
    model = stages("chain")
    given = replace(model, original=model.precise, prepared=model.precise, precision="quantized")
    rows = _rows(given)
    assert {row.overall.sqnr for row in rows.values()} == {200.0}
    assert rows["r1"].use == _rows(model)["r1"].use


def test_operands_of_a_concatenation_are_judged_apart():
    row = _rows(stages("detector"))["both"]
    assert row.overall.cosine > 0.9999
    boxes, scores = row.parts
    assert boxes.local.sqnr > 40 and boxes.dead == ()
    assert scores.local.sqnr == 0 and scores.dead == (0, 1, 2, 3, 4)


def _with_node(model: Stages, place: str, change) -> Stages:
    """The stages with another node in the operator graph."""
    ((symbol, graph),) = model.graphs.items()
    nodes = tuple(change(node) if node.output == place else node for node in graph.nodes)
    return replace(model, graphs={symbol: replace(graph, nodes=nodes)})


def _scaled(node: Node) -> Node:
    return replace(node, rescale=replace(node.rescale, scale=(node.rescale.scale * 0.8).astype(np.int32)))


def _shifted(node: Node) -> Node:
    return replace(node, rescale=replace(node.rescale, shift=node.rescale.shift + 1))


def _without_zero_point(node: Node) -> Node:
    return replace(node, rescale=replace(node.rescale, zero_point=0))


@pytest.mark.parametrize("fault", [_scaled, _shifted, _without_zero_point])
@pytest.mark.parametrize("tensor", ["r1", "r2", "y"])
def test_a_fault_in_the_integers_shows_where_it_is(fault, tensor):
    model = stages("chain")
    place = _rows(model)[tensor].layer.place.tensor
    (found,) = _local(_with_node(model, place, fault))
    assert (found.stage, found.tensor) == (Stage.ROUNDING, tensor)


def test_weights_of_one_layer_permuted_in_the_integers():
    model = stages("chain")
    ((symbol, graph),) = model.graphs.items()
    place = _rows(model)["r2"].layer.place.tensor
    (weights,) = (node.inputs[1] for node in graph.nodes if node.output == place)
    constants = {**graph.constants, weights: graph.constants[weights][::-1].copy()}
    (found,) = _local(replace(model, graphs={symbol: replace(graph, constants=constants)}))
    assert (found.stage, found.tensor) == (Stage.ROUNDING, "r2")


def _with_scale(model: Stages, tensor: str, factor: float) -> Stages:
    """The quantized model with another scale of one tensor, in float64 semantics only."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model.precise)
    for constant in changed.graph.initializer:
        if constant.name == f"{tensor}_scale":
            value = numpy_helper.to_array(constant) * np.float32(factor)
            constant.CopyFrom(numpy_helper.from_array(value, constant.name))
    return replace(model, precise=changed)


def test_a_scale_that_is_too_small_saturates():
    model = _with_scale(stages("chain"), "r1", 0.25)
    row = _rows(model)["r1"]
    values = np.concatenate([Evaluator(model.prepared).tensors(feeds)["r1"] for feeds in FEEDS])
    high = (255 + 1) * row.layer.codes.scale
    assert row.use.saturated == pytest.approx(np.mean(values > high))
    assert row.use.saturated > 0.01
    assert row.local.sqnr < 20


def test_a_scale_that_is_too_large_leaves_codes_unused():
    row = _rows(_with_scale(stages("chain"), "r1", 64.0))["r1"]
    assert row.use.unused > 0.98
    assert row.use.zeroed > 0


def _with_rounding(row: LayerRow, codes: np.dtype, in_bf16: bool, steps: Steps) -> LayerRow:
    layer = replace(row.layer, codes=replace(row.layer.codes, dtype=codes), in_bf16=in_bf16)
    return replace(row, layer=layer, rounding=steps)


@pytest.mark.parametrize(
    ("codes", "in_bf16", "steps", "is_defect"),
    [
        (np.int8, False, Steps(1, 0.537, 30.0), False),  # a layer of exact ties
        (np.int8, False, Steps(1, 1.0, 10.0), False),
        (np.int8, False, Steps(2, 0.3, 30.0), True),
        (np.int16, False, Steps(216, 9.0, 47.0), True),
        (np.int16, True, Steps(216, 9.0, 47.0), False),  # eight bits of a number are coarser than 16 of a range
        (np.int16, True, Steps(9000, 4000.0, 14.0), True),
        (np.int8, True, Steps(2, 0.1, 14.0), False),  # a few steps of a signal of a few steps
    ],
)
def test_what_is_no_rounding(codes, in_bf16, steps, is_defect):
    row = _with_rounding(_rows(stages("chain"))["r2"], np.dtype(codes), in_bf16, steps)
    assert [one.stage for one in layer_deviations([row])] == [Stage.ROUNDING] * is_defect


def _codes_from_bf16() -> Stages:
    """A convolution in bf16 whose results become 16-bit codes for one in integers."""
    plan = PrecisionPlan(dtype="int16", nodes={"conv1": "bf16", "relu1": "bf16"})
    options = Options(precision="mixed", calibration=data(8, seed=1), plan=plan, effort=0)
    return stages_of(chain(), options, name="mixed")


def test_codes_that_are_made_in_bf16_are_not_judged_by_their_steps():
    model = _codes_from_bf16()
    rows = _rows(model)
    assert {name for name, row in rows.items() if row.layer.in_bf16} >= {"r1"}
    assert not rows["r2"].layer.in_bf16
    row = rows["r1"]
    assert row.layer.codes.dtype == np.int16 and row.rounding.worst > 64
    assert row.rounding.sqnr > 40
    assert _local(model) == []


def test_a_gain_of_codes_that_are_made_in_bf16_is_a_defect():
    """It would keep the cosine."""
    model = _codes_from_bf16()
    graphs = {
        symbol: replace(
            graph,
            constants={
                name: (value * value.dtype.type(0.75)) if graph.tensors[name].dtype is DType.BF16 else value
                for name, value in graph.constants.items()
            },
        )
        for symbol, graph in model.graphs.items()
    }
    assert [(one.stage, one.tensor) for one in _local(replace(model, graphs=graphs))] == [(Stage.ROUNDING, "r1")]


def test_bf16_layers_alone():
    rows = _rows(stages("chain", "bf16"))
    assert set(rows) == {"r1", "r2", "g", "f", "y"}
    assert all(45 < row.local.sqnr <= 200 for row in rows.values())
    assert rows["f"].local.sqnr == 200
