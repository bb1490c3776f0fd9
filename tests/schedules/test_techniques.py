"""A technique that is off is not used, whatever a record says, and costs cycles where it matters."""

from __future__ import annotations

from codegen.infra import check_program, residual_graph
from codegen.passes.graphs import chain

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import Engine
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.techniques import ALL, Techniques

CONFIG = NpuConfig()


def test_names_switch_what_they_say() -> None:
    assert Techniques.without(()) == ALL
    assert Techniques.without(["fusion", "prefetch"]) == Techniques(fusion=False)
    off = Techniques.without(["fusion", "residency", "double-buffering", "slice-split"])
    assert off == Techniques(False, False, False, False)


def test_without_fusion_a_record_makes_no_groups() -> None:
    record = schedule(chain(), CONFIG).record
    assert record.groups
    assert schedule(chain(), CONFIG, overrides=record, techniques=Techniques(fusion=False)).groups == ()


def test_without_residency_a_record_keeps_nothing() -> None:
    graph = residual_graph(1)
    record = schedule(graph, CONFIG, techniques=Techniques(fusion=False)).record
    assert any(record.resident.values())
    assert not schedule(graph, CONFIG, overrides=record, techniques=Techniques(residency=False)).resident


def test_without_double_buffering_every_operand_has_one_tile() -> None:
    for graph in (residual_graph(1), chain()):
        record = schedule(graph, CONFIG).record
        plan = schedule(graph, CONFIG, overrides=record, techniques=Techniques(double_buffering=False))
        assert {entry.decision.buffers for entry in plan.nodes} == {1}


def test_without_slice_split_one_slice_does_all() -> None:
    for graph in (residual_graph(1), chain()):
        record = schedule(graph, CONFIG).record
        plan = schedule(graph, CONFIG, overrides=record, techniques=Techniques(slice_split=False))
        assert all(len(tile.parts) == 1 for entry in plan.nodes for tile in entry.tiles)
    both, one = (simulate_timeline(check_program(chain(), CONFIG, off).program) for off in ((), ("slice-split",)))
    tracks = {event.track for event in one.events if event.engine is Engine.SLICE}
    assert len(tracks) == 1
    assert one.total_cycles > both.total_cycles
