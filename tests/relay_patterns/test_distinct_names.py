"""Partitions of one model share no names: a schedule for one of them must not be taken for another's."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import torq_byoc
from torq_byoc.schedules.record import DecisionRecord


def _split_around_the_cpu() -> onnx.ModelProto:
    """Both parts of a Split are read on the NPU, the second one again behind an operator of the CPU."""
    weights = np.random.default_rng(1).normal(0, 0.3, (8, 4, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], "split", axis=1, num_outputs=2),
        helper.make_node("Conv", ["a", "w"], ["c"], "conv"),
        helper.make_node("CumSum", ["c", "axis"], ["d"], "sum"),
        helper.make_node("Conv", ["b", "w"], ["e"], "conv_b"),
        helper.make_node("Add", ["d", "e"], ["y"], "add"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array(1, np.int64), "axis")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_no_two_partitions_have_a_node_of_one_name() -> None:
    compiled = torq_byoc.compile(_split_around_the_cpu(), precision="bf16")
    records = [DecisionRecord.loads(partition.facts.decisions) for partition in compiled.partitions]
    assert len(records) > 1
    nodes = [name for record in records for name in record.nodes]
    grouped = [name for record in records for group in record.groups or () for name in group.nodes]
    assert len({*nodes, *grouped}) == len(nodes) + len(grouped)


def test_the_decisions_of_all_partitions_together_give_the_same_model() -> None:
    compiled = torq_byoc.compile(_split_around_the_cpu(), precision="bf16")
    records = [DecisionRecord.loads(partition.facts.decisions) for partition in compiled.partitions]
    together = DecisionRecord.union(records)
    again = torq_byoc.compile(_split_around_the_cpu(), precision="bf16", schedule=together)
    assert again.to_bytes() == compiled.to_bytes()
