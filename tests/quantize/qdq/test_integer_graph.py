"""Which operators of a small graph get an integer form, and what becomes of the tensors between them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantize.models import parsed
from torq_byoc.quantize.precision_plan import PrecisionPlan, TensorPrecision
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph

LAYERS = (
    "c = Conv(x, w) r = Relu(c) p = MaxPool<kernel_shape=[2,2]>(r) t = Transpose<perm=[0,2,3,1]>(p) y = CumSum(t, a)"
)
CONSTANTS = {"w": np.ones((4, 2, 3, 3)), "a": np.array(1)}


def layers(plan: PrecisionPlan | None = None) -> IntegerGraph:
    return IntegerGraph(parsed(LAYERS, "float[1,2,8,8] x", constants=CONSTANTS), plan)


def test_operators_without_integer_form_and_those_of_the_plan_stay_float() -> None:
    graph = layers()
    names = {node.op_type: node.name for node in graph.nodes}
    assert [node.op_type for node in graph.integer_nodes()] == ["Conv", "Relu", "MaxPool", "Transpose"]
    assert graph.integer_producer("y") is None and graph.integer_producer("x") is None
    planned = layers(PrecisionPlan(nodes={names["Relu"]: "bf16"}))
    assert [node.op_type for node in planned.integer_nodes()] == ["Conv", "MaxPool", "Transpose"]


def test_a_clamp_does_for_its_producer_and_followers_take_the_codes_of_their_leader() -> None:
    graph = layers()
    assert graph.absorbed("c").op_type == "Relu" and graph.absorbed("r") is None
    assert graph.to_observe() == ["x", "r", "p", "t"]
    assert graph.to_observe(absorbed=True) == ["x", "c", "r", "p", "t"]
    assert [graph.leader(name) for name in ("t", "p", "r", "x")] == ["r", "r", "r", "x"]
    planned = layers(PrecisionPlan(nodes={graph.producer["r"].name: "bf16"}))
    assert planned.absorbed("c") is None and planned.leader("t") == "r"


def test_what_two_nodes_read_or_the_model_returns_is_nobodys_own() -> None:
    graph = IntegerGraph(parsed("a = Neg(x) b = Relu(a) y = Add(a, b)", "float[1,4] x", "y, b"))
    assert graph.sole_integer_reader("a") is None, "two readers"
    assert graph.sole_integer_reader("b") is None, "an output"
    assert graph.sole_integer_reader("x").op_type == "Neg"


@pytest.mark.parametrize(("bias", "absorbed"), [(np.ones(5), True), (np.ones((3, 5)), False), (np.ones(1), False)])
def test_the_bias_of_a_matrix_product_is_one_number_a_column(bias: np.ndarray, absorbed: bool) -> None:
    graph = IntegerGraph(
        parsed("m = MatMul(x, w) y = Add(m, b)", "float[3,4] x", constants={"w": np.ones((4, 5)), "b": bias})
    )
    assert (graph.absorbed("m") is not None) == absorbed


def test_nothing_is_rounded_inside_a_function_unless_it_is_wide() -> None:
    def graph(plan: PrecisionPlan) -> IntegerGraph:
        return IntegerGraph(parsed("s = Sigmoid(x) y = Mul(x, s)", "float[1,4] x"), plan)

    assert graph(PrecisionPlan()).inside == {"s"} and graph(PrecisionPlan()).to_observe() == ["x", "y"]
    assert not graph(PrecisionPlan(tensors={"y": TensorPrecision(dtype="int16")})).inside


def test_constants_that_no_scale_holds_keep_an_operator_float() -> None:
    infinite = {"k": np.array([1.0, -np.inf, 2.0, 0.0])}
    assert not IntegerGraph(parsed("y = Max(x, k)", "float[1,4] x", constants=infinite)).integer_nodes()
