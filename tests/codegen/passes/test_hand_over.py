"""Within a band results and operands are in one place for all who read them; stores are left to another pass."""

from __future__ import annotations

from codegen.infra import check_program, residual_graph
from codegen.passes.graphs import applied, chain, moved_bytes

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.record import DecisionRecord


def test_what_a_band_passes_on_is_not_loaded() -> None:
    graph = chain()
    found = applied("fusion", graph)
    (group,) = found.schedule.groups
    assert len(group.bands) > 1 and len(group.kept) == 2
    for name in group.kept:
        assert moved_bytes(found.before, name) == (graph.tensors[name].nbytes,) * 2
        assert moved_bytes(found.after, name) == (0, graph.tensors[name].nbytes)
    # both readers of x take it from one load
    assert moved_bytes(found.before, "x")[0] == 2 * graph.tensors["x"].nbytes
    assert moved_bytes(found.after, "x")[0] == graph.tensors["x"].nbytes
    assert found.saved["in_bytes"] == sum(graph.tensors[name].nbytes for name in (*group.kept, "x"))


def test_nodes_on_their_own_hand_nothing_over() -> None:
    found = applied("fusion", residual_graph(1), record=DecisionRecord(groups=()))
    assert found.after is found.before


def test_bits_stay_the_same_without_it() -> None:
    check_program(chain(), NpuConfig(), ("fusion",))
