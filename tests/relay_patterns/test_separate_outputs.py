"""Results of a partition never share memory with its parameters or with each other."""

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.separate_outputs import separate_outputs


def test_views_of_parameters_and_of_other_results_are_copied() -> None:
    builder = GraphBuilder("views")
    x = builder.input("x", (2, 6), DType.INT8, 0.5, 3)
    view = builder.emit("reshape", [x], (3, 4), DType.INT8, scale=0.5, zero_point=3)
    identity = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32))
    y = builder.emit("act", [view], (3, 4), DType.INT8, attrs={"mode": "ACT"}, rescale=identity)
    renamed = builder.emit("reshape", [y], (12,), DType.INT8)
    for name in (view, y, renamed):
        builder.output(name)
    graph = separate_outputs(builder.finish())
    assert [node.op for node in graph.nodes] == ["reshape", "act", "reshape", "slice", "slice"]
    assert graph.outputs[1] == y
    assert (graph.tensors[graph.outputs[0]].scale, graph.tensors[graph.outputs[0]].zero_point) == (0.5, 3)
    codes = np.arange(12, dtype=np.int8).reshape(2, 6)
    values = evaluate(graph, {"x": codes})
    assert np.array_equal(values[graph.outputs[0]], codes.reshape(3, 4))
    assert np.array_equal(values[graph.outputs[2]], codes.reshape(12))


def test_other_results_are_left_alone() -> None:
    builder = GraphBuilder("plain")
    x = builder.input("x", (4, 4), DType.INT8)
    y = builder.emit("transpose", [x], (4, 4), DType.INT8, attrs={"perm": (1, 0)})
    builder.output(builder.emit("reshape", [y], (16,), DType.INT8))
    graph = builder.finish()
    assert separate_outputs(graph).nodes == graph.nodes
