"""Every operator's TIR function, unscheduled and scheduled, against the kernel's whole-tensor reference."""

from __future__ import annotations

import numpy as np
import pytest
from schedules.cases import CASES, Case, sample

from torq_byoc.kernels.graph import ALIAS_OPS, OpGraph
from torq_byoc.kernels.kernel import kernel_for, registered_ops
from torq_byoc.schedules.node_tiles import scheduled_function
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.tensor_expressions import arguments, define, defined_ops


def run(func: object, graph: OpGraph, inputs: list[np.ndarray]) -> np.ndarray:
    import tvm

    node = graph.nodes[0]
    info = graph.tensors[node.output]
    operands = [tvm.runtime.tensor(np.ascontiguousarray(value)) for value in (*inputs, *arguments(graph, node))]
    result = tvm.runtime.tensor(np.zeros(info.shape, info.dtype.numpy))
    tvm.compile(func, target="llvm")(*operands, result)
    return result.numpy()


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Bit for bit; bf16 within one unit in the last place."""
    assert found.dtype == wanted.dtype
    if found.dtype.name == "bfloat16":
        steps = np.abs(found.view(np.int16).astype(int) - wanted.view(np.int16).astype(int))
        assert steps.max(initial=0) <= 1
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tir_equals_the_kernel_reference_before_and_after_scheduling(case: Case) -> None:
    graph = case.graph()
    node = graph.nodes[0]
    rng = np.random.default_rng(3)
    inputs = [
        graph.constants[name]
        if name in graph.constants
        else sample(rng, graph.tensors[name].shape, graph.tensors[name].dtype)
        for name in node.inputs
    ]
    wanted = kernel_for(node.op).reference(graph, node, inputs)
    assert len(np.unique(wanted)) > 1 or wanted.size == 1, "a constant result proves nothing"
    assert_same(run(define(graph, node).prim_func(), graph, inputs), wanted)
    order = tuple(reversed(range(len(case.shape))))
    decision = NodeDecision(case.tile, order, None, 2)
    assert_same(run(scheduled_function(graph, node, decision).mod["main"], graph, inputs), wanted)


def test_every_kernel_has_a_tensor_expression() -> None:
    assert set(defined_ops()) == set(registered_ops()) - set(ALIAS_OPS)


def test_every_tensor_expression_has_a_case() -> None:
    assert {case.op for case in CASES} == set(defined_ops())
