"""Resident tensors cross the bus neither way; all others are left alone."""

from __future__ import annotations

from codegen.infra import residual_graph
from codegen.passes.graphs import applied, moved_bytes

from torq_byoc.codegen.hl import SliceCall
from torq_byoc.schedules.record import DecisionRecord

ALONE = DecisionRecord(groups=())


def test_resident_tensors_are_neither_stored_nor_loaded() -> None:
    graph = residual_graph(1)
    found = applied("residency", graph, record=ALONE)
    assert found.schedule.resident
    sizes = {name: graph.tensors[name].nbytes for name in found.schedule.resident}
    for name, nbytes in sizes.items():
        before, after = moved_bytes(found.before, name), moved_bytes(found.after, name)
        assert before[1] == nbytes and before[0] >= nbytes
        assert after == (0, 0)
    assert found.saved["out_bytes"] == sum(sizes.values())


def test_each_resident_tensor_has_one_buffer_of_its_size() -> None:
    graph = residual_graph(1)
    found = applied("residency", graph, record=ALONE)
    written = {op.node: op.invocation.output.buffer for op in found.after.ops if isinstance(op, SliceCall)}
    for node in graph.nodes:
        if node.output in found.schedule.resident:
            assert found.after.buffers[written[node.name]].nbytes == graph.tensors[node.output].nbytes


def test_nothing_happens_where_nothing_stays() -> None:
    graph = residual_graph(1)
    nowhere = DecisionRecord(resident=dict.fromkeys(applied("residency", graph).schedule.record.resident, False))
    found = applied("residency", graph, record=nowhere)
    assert found.after.ops == found.before.ops
    assert set(found.saved.values()) == {0}
