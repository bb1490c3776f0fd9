"""Copies that another node left are read instead of loaded again, while their place is free."""

from __future__ import annotations

from codegen.infra import check_program
from codegen.passes.graphs import one_convolution, two_readers

from torq_byoc.codegen.generate import GeneratedProgram
from torq_byoc.npu_model.config import NpuConfig


def saved(generated: GeneratedProgram) -> dict[str, int]:
    return next(entry.saved for entry in generated.ledger if entry.name == "clean-copies")


def loaded(generated: GeneratedProgram) -> int:
    return sum(layer.get("in_activation", 0) for layer in generated.layer_bytes.values())


def test_the_second_reader_of_an_input_finds_it_in_lram() -> None:
    graph, config = two_readers(), NpuConfig()
    once, twice = (check_program(graph, config, disabled) for disabled in ((), ("clean-copies",)))
    nbytes = graph.tensors["x"].nbytes
    assert saved(once)["in_bytes"] == nbytes
    assert saved(once)["out_bytes"] == saved(once)["slice_jobs"] == 0
    assert (loaded(once), loaded(twice)) == (nbytes, 2 * nbytes)


def test_a_copy_gives_way_where_memory_is_short() -> None:
    """The input is as large as the memory: its tiles make room for one another, and come twice."""
    graph = two_readers(64)
    config = NpuConfig(lram_bytes=graph.tensors["x"].nbytes // 2)
    assert saved(check_program(graph, config))["in_bytes"] < graph.tensors["x"].nbytes // 2


def test_a_node_alone_has_nobody_to_inherit_from() -> None:
    assert saved(check_program(one_convolution(), NpuConfig()))["in_transfers"] == 0
