"""Operands that do not change from tile to tile are loaded once; those that do are loaded for each."""

from __future__ import annotations

from codegen.infra import check_program
from codegen.passes.graphs import applied, moved_bytes, one_convolution

from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


def fixed(tile: tuple[int, ...]) -> DecisionRecord:
    return DecisionRecord({"conv": NodeOverride(tile, (0, 1, 2, 3), (None,), 2)})


def test_weights_stay_while_rows_change() -> None:
    graph = one_convolution()
    (node,) = graph.nodes
    weights = sum(c.data.nbytes for c in kernel_for(node.op).constants(graph, node, NpuConfig()))
    found = applied("loop-invariant", graph, record=fixed((1, 24, 4, 16)))
    assert found.saved["in_bytes"] == 3 * weights
    assert moved_bytes(found.after, "x")[0] == graph.tensors["x"].nbytes


def test_the_input_stays_while_filters_change() -> None:
    graph = one_convolution()
    found = applied("loop-invariant", graph, record=fixed((1, 8, 16, 16)))
    assert found.saved["in_bytes"] == 2 * graph.tensors["x"].nbytes


def test_one_tile_has_nothing_to_keep() -> None:
    found = applied("loop-invariant", one_convolution(), record=fixed((1, 24, 16, 16)))
    assert found.after.ops == found.before.ops


def test_what_an_outer_loop_changes_is_loaded_again() -> None:
    """Filters outside, rows inside: rows differ from tile to tile, so the input comes once for each part of filters."""
    graph = one_convolution()
    found = applied("loop-invariant", graph, record=fixed((1, 12, 8, 16)))
    assert moved_bytes(found.after, "x")[0] == 2 * graph.tensors["x"].nbytes


def test_bits_stay_the_same_without_it() -> None:
    check_program(one_convolution(size=33), NpuConfig(lram_bytes=24 * 1024), ("loop-invariant",))
