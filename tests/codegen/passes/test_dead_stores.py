"""Stores that nobody loads from are not made; outputs are."""

from __future__ import annotations

from codegen.infra import check_program
from codegen.passes.graphs import applied, chain, moved_bytes, two_readers

from torq_byoc.codegen.passes.dead_stores import eliminate_dead_stores
from torq_byoc.npu_model.config import NpuConfig


def test_what_a_group_keeps_is_not_stored() -> None:
    graph = chain()
    found = applied("dead-stores", graph)
    (group,) = found.schedule.groups
    kept = sum(graph.tensors[name].nbytes for name in group.kept)
    assert found.saved["out_bytes"] == kept > 0
    assert found.saved["out_transfers"] == len(group.bands) * len(group.kept)
    (output,) = graph.outputs
    assert moved_bytes(found.after, output)[1] == graph.tensors[output].nbytes


def test_outputs_and_tensors_that_are_loaded_again_are_stored() -> None:
    assert set(applied("dead-stores", two_readers()).saved.values()) == {0}
    naive = applied("share-slices", chain()).before
    assert eliminate_dead_stores(naive).ops == naive.ops


def test_without_it_the_same_bits_and_more_traffic() -> None:
    graph = chain()
    wasteful = check_program(graph, NpuConfig(), ("dead-stores",))
    stored = sum(layer.get("out_activation", 0) for layer in wasteful.layer_bytes.values())
    assert stored == 3 * graph.tensors["x"].nbytes  # what is passed on, twice, and the output
