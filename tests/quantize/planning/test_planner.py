"""From a target to a plan, with prices made up: 16 bits in a tensor cost what its readers cost more."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper

from benchmarks.accuracy import sets
from tests.quantize.models import scales_of
from tests.quantize.planning.models import depthwise, heavy_tail, joined, residual_mismatch
from torq_byoc.errors import AccuracyError, CalibrationError, QuantizationError
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.planning.planner import judged_plan, plan_precision
from torq_byoc.quantize.planning.price import Cost
from torq_byoc.quantize.planning.target import PrecisionTarget, Reached
from torq_byoc.quantize.precision_plan import PrecisionPlan, TensorPrecision


def price(model: onnx.ModelProto) -> Mapping[str, Cost]:
    """100 cycles an operator on codes of 8 bits, 200 on 16, 300 on floats; none for what shares a requantization."""
    codes = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.value_info, *model.graph.input)}
    dequantized = {
        node.output[0]: codes.get(node.input[0]) for node in model.graph.node if node.op_type == "DequantizeLinear"
    }
    cycles = {TensorProto.INT8: 100.0, TensorProto.INT16: 200.0}

    def cycles_of(node: onnx.NodeProto) -> float:
        is_float = node.op_type in ("Conv", "MatMul") and node.input[1] not in dequantized
        return 300.0 if is_float else cycles.get(dequantized.get(node.input[0]), 0.0)

    return {node.name: Cost(cycles_of(node), 10.0) for node in model.graph.node if not node.op_type.endswith("Linear")}


def wide(plan: PrecisionPlan) -> set[str]:
    return {name for name, entry in plan.tensors.items() if entry.dtype == "int16"}


def test_residual_mismatch_is_cured_by_few_wide_tensors():
    model, data = residual_mismatch()
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=40.0))
    assert planned.met and planned.reached.sqnr >= 40.0 > planned.int8.sqnr + 5
    assert wide(planned.plan) <= {"x", "d", "y"} and not planned.plan.nodes
    judge = Judge(model, samples(model, data))
    assert judge.of(quantize_model(model, data, plan=planned.plan)).sqnr == pytest.approx(planned.reached.sqnr, abs=0.5)
    assert planned.cost.cycles > planned.int8_cost.cycles == 400.0


def test_one_wide_tensor_cures_a_heavy_tail():
    model, data = heavy_tail()
    judge = Judge(model, samples(model, data))
    minmax = judge.of(quantize_model(model, data, method="minmax")).sqnr
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=minmax + 8))
    assert planned.met and len(wide(planned.plan)) <= 1
    assert judge.of(quantize_model(model, data, plan=planned.plan)).sqnr >= minmax + 8


def test_whole_ranges_stay_where_the_target_allows_and_16_bits_have_room_for_more():
    """Narrower ranges lessen the error on the samples; they cut off what unseen data may have more of."""
    stress = sets.heavy_tail(5)
    model, data = prepare(stress.model), stress.data(16, 2)
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=26.0))
    assert planned.met and planned.plan.tensors == {"x": TensorPrecision(dtype="int16", method="headroom")}
    quantized = quantize_model(model, data, plan=planned.plan)
    assert scales_of(quantized)["x"] == pytest.approx(2 * np.abs(data["x"]).max() / 32767)
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=32.0))
    assert planned.met and wide(planned.plan) == {"x"}
    assert {"t1", "y"} & {name for name, entry in planned.plan.tensors.items() if entry.method == "percentile"}


def test_what_made_up_for_narrower_ranges_goes_with_them():
    """They cut off values of some samples, so that a second tensor needs 16 bits; with whole ranges one will do."""
    stress = sets.heavy_tail(13)
    model, data = prepare(stress.model), stress.data(16, 1013)
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=26.0))
    assert planned.met and wide(planned.plan) == {"x"} == set(planned.plan.tensors)


def test_half_of_what_is_reached_beyond_the_target_becomes_room():
    """In one of eight fresh samples values behind the input go beyond all calibrated ones."""
    stress = sets.heavy_tail(4)
    model, data = prepare(stress.model), stress.data(16, 1004)
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=30.0))
    assert planned.plan.room > 1 and planned.met
    fresh = Judge(model, samples(model, stress.data(8, 2004)))
    known = Judge(model, samples(model, {"x": data["x"][[0, 5, 10, 15]]}))
    tight = quantize_model(model, data, plan=replace(planned.plan, room=1.0))
    assert planned.reached.sqnr >= (known.of(tight).sqnr + 30.0) / 2 - 0.01
    roomy = quantize_model(model, data, plan=planned.plan)
    assert fresh.of(roomy).sqnr >= fresh.of(tight).sqnr + 0.5
    short = plan_precision(model, data, price, PrecisionTarget(sqnr=planned.reached.sqnr + 0.4))
    assert short.met and wide(short.plan) == {"x"} and short.plan.room == 1


def test_a_plan_that_misses_its_target_gets_no_room():
    model, data = residual_mismatch()
    assert plan_precision(model, data, price, PrecisionTarget(sqnr=90.0)).plan.room == 1


def test_nothing_is_done_where_8_bits_suffice():
    model, data = joined()
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=20.0))
    assert planned.plan == PrecisionPlan() and planned.met and planned.cost == planned.int8_cost


def test_a_target_out_of_reach_gives_the_best_plan_found():
    model, data = residual_mismatch()
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=90.0))
    assert not planned.met and planned.reached.sqnr > planned.int8.sqnr + 15


@pytest.mark.parametrize(("draw", "decibels"), [(0, 57.0), (1, 63.0)])
def test_16_bits_alone_are_planned_where_a_mixture_with_bf16_falls_short(draw, decibels):
    """In draw 0 layers in bf16 leave more than was expected of them, in draw 1 tensors that matter little do."""
    stress = sets.depthwise_spread(draw)
    model, data = prepare(stress.model), stress.data(4, draw)
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=decibels))
    assert planned.met and not planned.plan.nodes
    judge = Judge(model, samples(model, data))
    assert judge.of(quantize_model(model, data, plan=planned.plan)).sqnr == pytest.approx(
        planned.reached.sqnr, abs=1e-3
    )


def test_plans_are_the_same_every_time():
    model, data = residual_mismatch()
    first, second = (plan_precision(model, data, price, PrecisionTarget(cosine=0.9999)) for _ in range(2))
    assert first.plan.dumps() == second.plan.dumps() and first.met and first.reached.cosine >= 0.9999


def test_a_metric_of_the_user_decides():
    model, data = residual_mismatch()
    seen = []

    def largest_error(wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
        seen.append((wanted["y"].shape, found["y"].shape))
        return -float(np.abs(wanted["y"] - found["y"]).max() / np.abs(wanted["y"]).max())

    planned = plan_precision(model, data, price, PrecisionTarget(metric=largest_error, least=-0.01))
    assert planned.met and planned.reached.metric >= -0.01 > planned.int8.metric
    assert set(seen) == {((4, 16, 16, 16),) * 2}


def test_outputs_that_are_no_numbers_are_refused():
    """An infinite result of the model alone, behind tensors that all have ranges."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"], name="e")], "m", [x], [y])
    model = prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), {})
    data = {"x": np.array([[1.0, 2.0, 3.0, 0.5], [1.0, 2.0, 3.0, 100.0]], np.float32)}
    with pytest.raises(CalibrationError, match="y becomes NaN or infinite"):
        plan_precision(model, data, price, PrecisionTarget(sqnr=40.0))


def test_a_metric_must_give_one_number():
    model, data = joined()
    with pytest.raises(AccuracyError, match="no number"):
        plan_precision(model, data, price, PrecisionTarget(metric=lambda a, b: float("nan"), least=0.0))
    with pytest.raises(QuantizationError, match="several numbers"):
        plan_precision(model, data, price, PrecisionTarget(metric=lambda a, b: {"p": 1, "q": 2}, least=0.0))


def test_a_given_plan_is_judged():
    model, data = residual_mismatch()
    plan = PrecisionPlan(tensors={"d": TensorPrecision(dtype="int16")})
    assert judged_plan(model, data, plan, price).met
    planned = judged_plan(model, data, plan, price, PrecisionTarget(sqnr=60.0))
    assert not planned.met and planned.plan == plan and planned.reached.sqnr > planned.int8.sqnr


@pytest.mark.parametrize("numbers", [{"sqnr": -3.0}, {"sqnr": 500.0}, {"cosine": 1.0}, {"sqnr": float("nan")}])
def test_targets_that_nothing_reaches(numbers):
    with pytest.raises(QuantizationError, match="no quantized model reaches"):
        PrecisionTarget(**numbers)


def test_a_metric_needs_its_least_value():
    with pytest.raises(QuantizationError, match="go together"):
        PrecisionTarget(least=0.5)


def test_all_numbers_of_a_target_count():
    target = PrecisionTarget(sqnr=30.0, cosine=0.999)
    assert target.met(Reached(31.0, 0.9995)) and not target.met(Reached(31.0, 0.99))
    assert target.noise == pytest.approx(10**-3)
    assert PrecisionTarget(cosine=0.9999).noise == pytest.approx(2e-4)


def test_rewrites_are_planned_for_kept_in_the_plan_and_can_be_left_out():
    stress = sets.outlier_block(0)
    model, data = prepare(stress.model), stress.data(16, 1)
    target = PrecisionTarget(sqnr=30.0)
    planned = plan_precision(model, data, price, target)
    (rewrite,) = planned.plan.rewrites
    assert planned.met and planned.int8.sqnr < 20.0, "8 bits everywhere are without rewrites"
    assert rewrite.name == "equalize_channels" and rewrite.places == ("LayerNormalization_t0",)
    assert not wide(planned.plan) and not planned.plan.nodes
    again = judged_plan(model, data, PrecisionPlan.loads(planned.plan.dumps()), price, target)
    assert (again.reached, again.cost, again.int8) == (planned.reached, planned.cost, planned.int8)
    without = judged_plan(model, data, replace(planned.plan, rewrites=()), price, target)
    disabled = judged_plan(model, data, planned.plan, price, target, disabled=["equalize_channels"])
    assert without.reached == disabled.reached and disabled.plan.rewrites == () and not disabled.met
    plain = plan_precision(model, data, price, target, disabled=["equalize_channels"])
    assert plain.plan.rewrites == () and (wide(plain.plan) or plain.plan.nodes)


@pytest.mark.parametrize("disabled", [[], ["equalize_depthwise"]])
def test_8_bits_everywhere_are_the_same_figure_when_the_plan_is_given_back(disabled):
    """They have the rewrite that loses nothing where the plan has it, whatever else the plan does."""
    model, data = depthwise()
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=60.0), disabled=disabled)
    assert [entry.name for entry in planned.plan.rewrites] == ([] if disabled else ["equalize_depthwise"])
    again = judged_plan(model, data, PrecisionPlan.loads(planned.plan.dumps()), price)
    assert (again.int8, again.int8_cost) == (planned.int8, planned.int8_cost)
    assert again.reached == planned.reached != planned.int8


def test_disabled_bias_correction_stays_so_in_the_plan():
    model, data = joined()
    planned = plan_precision(model, data, price, PrecisionTarget(sqnr=20.0), disabled=["bias_correction"])
    assert planned.plan == PrecisionPlan(correct_biases=False)
    assert judged_plan(model, data, PrecisionPlan.loads(planned.plan.dumps()), price).reached == planned.reached
    with pytest.raises(QuantizationError, match="there is no rewrite 'biases'"):
        plan_precision(model, data, price, disabled=["biases"])


def test_a_split_input_is_planned_for_and_its_outliers_have_room():
    """Where 16 bits are dear the input in two parts of 8 bits is the cheaper plan; the plan need not name the parts."""
    stress = sets.heavy_tail(0)
    model, data = prepare(stress.model), stress.data(16, 1)

    def dear(quantized: onnx.ModelProto) -> Mapping[str, Cost]:
        return {name: Cost(cost.cycles**2, cost.bytes) for name, cost in price(quantized).items()}

    target = PrecisionTarget(sqnr=22.0)
    planned = plan_precision(model, data, dear, target)
    (rewrite,) = planned.plan.rewrites
    assert planned.met and rewrite.name == "split_outliers" and planned.plan.tensors == {}
    again = judged_plan(model, data, PrecisionPlan.loads(planned.plan.dumps()), dear, target)
    assert (again.reached, again.cost) == (planned.reached, planned.cost)
    scales = scales_of(quantize_model(model, data, plan=planned.plan))
    outliers = data["x"] - data["x"].clip(-scales["x_usual"] * 127, scales["x_usual"] * 127)
    assert scales["x_outliers"] == pytest.approx(2 * (outliers.max() - outliers.min()) / 255, rel=0.02)
    assert not judged_plan(model, data, planned.plan, dear, target, disabled=["split_outliers"]).met
