"""Mixed precision through the compiler: prices, plans, notes, and programs equal to their references."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torq_byoc
from benchmarks.accuracy import sets
from benchmarks.accuracy.sets import dead_channels, detector_head, outlier_block
from tests.end_to_end.harness import compile_and_compare
from tests.end_to_end.random_graphs import seeded_graph
from tests.quantize.planning.models import heavy_tail, residual_mismatch
from torq_byoc.compilation.options import is_quantized
from torq_byoc.compilation.pricing import HOST_CYCLES, price_for
from torq_byoc.errors import QuantizationError, TorqError
from torq_byoc.frontend import prepare
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.planning.moves import all_weighted
from torq_byoc.quantize.planning.price import total
from torq_byoc.quantize.precision_plan import PlannedRewrite, PrecisionPlan, TensorPrecision
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.quantizable import Quantizable

INT16 = TensorPrecision(dtype="int16")


def test_prices_name_the_operators_and_rise_with_the_width():
    model, data = residual_mismatch()
    price = price_for(NpuConfig())
    narrow = price(quantize_model(model, data, plan=PrecisionPlan()))
    wide = price(quantize_model(model, data, plan=PrecisionPlan(tensors={"d": INT16})))
    floats = price(quantize_model(model, data, plan=all_weighted(Quantizable(model, {}))))
    assert set(narrow) >= {"a", "c", "d", "y"} and min(cost.cycles for cost in narrow.values()) > 0
    assert wide["y"].cycles > 1.3 * narrow["y"].cycles and wide["a"] == narrow["a"]
    assert total(floats).cycles > total(narrow).cycles
    weights = 16 * 16 * 9
    assert narrow["y"].bytes == weights + 16 * 16 * 16 and floats["y"].bytes == 2 * (weights + 16 * 16 * 16)


def test_an_operator_on_the_cpu_is_dearer_than_any():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6])
    axis = onnx.numpy_helper.from_array(np.array(1, np.int64), "axis")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="r"),
        helper.make_node("CumSum", ["r", "axis"], ["y"], name="s"),
    ]
    graph = helper.make_graph(nodes, "cpu", [x], [y], [axis])
    model = prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), {})
    data = {"x": np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)}
    assert price_for(NpuConfig())(quantize_model(model, data))["s"].cycles >= HOST_CYCLES


def test_a_float_model_is_planned_for_its_target():
    model, data = residual_mismatch()
    target = torq_byoc.PrecisionTarget(sqnr=40.0)
    compiled = torq_byoc.compile(model, precision="mixed", calibration=data, target=target)
    assert compiled.facts.precision == "mixed" and compiled.planned.met
    (note,) = [note for note in compiled.facts.notes if note.startswith("mixed precision")]
    assert f"{len(compiled.planned.plan.tensors)} int16 tensors" in note
    again = torq_byoc.compile(model, precision="mixed", calibration=data, plan=compiled.planned.plan)
    assert again.to_bytes() == compiled.to_bytes()


@pytest.mark.parametrize(("builder", "sqnr"), [(detector_head, 40.0), (outlier_block, 36.0)])
def test_a_plan_with_rewrites_gives_its_program_again(builder, sqnr, tmp_path):
    stress = builder(0)
    data, file = stress.data(16, 1), tmp_path / "plan.json"
    request = {"precision": "mixed", "calibration": data}
    compiled = torq_byoc.compile(stress.model, target=torq_byoc.PrecisionTarget(sqnr=sqnr), **request)
    assert compiled.planned.met and compiled.planned.plan.rewrites
    file.write_text(compiled.planned.plan.dumps())
    again = torq_byoc.compile(stress.model, plan=file, **request)
    assert again.to_bytes() == compiled.to_bytes()
    (name,) = {rewrite.name for rewrite in compiled.planned.plan.rewrites}
    assert any(note.startswith(f"{name} at ") for note in compiled.facts.notes)


@pytest.mark.parametrize(
    ("builder", "rewrite"),
    [
        (detector_head, PlannedRewrite("concat_in_float", ("Concat_t11",))),
        (dead_channels, PlannedRewrite("scale_outputs", ("Conv_t0",))),
        (outlier_block, PlannedRewrite("equalize_channels", ("LayerNormalization_t0",), 0.5)),
        (sets.heavy_tail, PlannedRewrite("split_outliers", ("Conv_t0",), 0.75)),
    ],
)
def test_programs_of_plans_with_rewrites_equal_their_references(builder, rewrite):
    stress = builder(0)
    data = stress.data(16, 1)
    quantized = quantize_model(prepare(stress.model), data, plan=PrecisionPlan(rewrites=(rewrite,)))
    compile_and_compare(quantized, {"x": data["x"][:1]}, NpuConfig(), precision="mixed")


def test_a_missed_target_is_a_warning_with_both_numbers():
    model, data = heavy_tail()
    target = torq_byoc.PrecisionTarget(sqnr=90.0)
    compiled = torq_byoc.compile(
        model, precision="mixed", calibration=data, target=target, plan=PrecisionPlan(tensors={"x": INT16})
    )
    (warning,) = [text for text in compiled.facts.warnings if "target" in text]
    assert f"{compiled.planned.reached.sqnr:.6g}, asked for 90" in warning


def test_a_quantized_model_takes_no_plan():
    model, data = heavy_tail()
    with pytest.raises(QuantizationError, match="takes no precision plan"):
        torq_byoc.compile(quantize_model(model, data), precision="mixed", plan=PrecisionPlan())


def test_other_precisions_say_that_a_plan_has_no_effect():
    model, data = heavy_tail()
    compiled = torq_byoc.compile(model, calibration=data, plan=PrecisionPlan())
    assert "the precision plan has no effect: it is for mixed precision" in compiled.facts.notes


def _random_plan(model: onnx.ModelProto, rng: np.random.Generator) -> PrecisionPlan:
    """int16 for some tensors and bf16 for some operators."""
    graph = IntegerGraph(model)
    own = [name for name in graph.to_observe() if graph.leader(name) == name]
    return PrecisionPlan(
        dtype=str(rng.choice(["int8", "int8", "int16"])),
        tensors={name: TensorPrecision(dtype=str(rng.choice(["int8", "int16"]))) for name in own if rng.random() < 0.4},
        nodes={node.name: "bf16" for node in graph.integer_nodes() if rng.random() < 0.25},
    )


def _check_plan(seed: int) -> bool:
    """A random float graph under a random plan; whether there was something to compare."""
    rng = np.random.default_rng(seed)
    graph = seeded_graph(seed, "float32")
    if not graph.operators:
        return False
    model = prepare(graph.model)
    plan = _random_plan(model, rng)
    quantized = quantize_model(model, graph.feeds, plan=plan)
    if not is_quantized(quantized):
        return False
    onnx.checker.check_model(quantized, full_check=True)
    compile_and_compare(quantized, graph.feeds, NpuConfig(), precision="mixed")
    return True


FOLDED_IN_PLACE, FLOAT_OUTPUT = 172, 639
"""Plans with a weighted sum in place, and with a float result that an integer operator reads and the model returns."""


@pytest.mark.parametrize("seed", [*range(20), FOLDED_IN_PLACE, FLOAT_OUTPUT])
def test_programs_of_random_plans_equal_their_references(seed):
    _check_plan(seed)


@pytest.mark.slow
def test_programs_of_many_random_plans_equal_their_references():
    failures = []
    for seed in range(100, 700):
        try:
            _check_plan(seed)
        except TorqError as error:
            failures.append(f"{seed}: {error!r:.300}")
        except AssertionError as error:
            failures.append(f"{seed}: {error!r:.300}")
    assert not failures, "\n".join(failures)
