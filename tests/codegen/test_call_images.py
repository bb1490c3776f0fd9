"""Programs that are copies of one another: the same bytes as if every call had been lowered and encoded itself."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.depth import Encoder, encoder_model
from tests.codegen.infra import residual_graph
from tests.end_to_end.random_graphs import seeded_graph
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.codegen.build import build
from torq_byoc.codegen.call_forms import node_kinds
from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.hl import RunProgram, SliceRun
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.prefetch import order
from torq_byoc.codegen.programs import invocation_tasks, with_programs
from torq_byoc.codegen.result_places import ResultPlacer
from torq_byoc.frontend import prepare
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import base_fields, encode_slice_program
from torq_byoc.npu_model.presets import preset
from torq_byoc.schedules.plan import schedule

CONFIG = preset("lram64")


def encoder_graph(layers: int = 1) -> OpGraph:
    """Transformer encoder layers: products, folds of two tensors, reductions, transposes, tables; odd sizes."""
    model = prepare(encoder_model(layers, Encoder(tokens=37, width=34, heads=2, inner=68)))
    (graph,) = IntegerReference.of(model, "bf16", CONFIG).graphs.values()
    return graph


def random_graph(seed: int, dtype: str) -> OpGraph:
    """The largest partition of a random model."""
    precision = "bf16" if dtype == "float32" else "quantized"
    graphs = IntegerReference.of(prepare(seeded_graph(seed, dtype).model), precision, CONFIG).graphs
    return max(graphs.values(), key=lambda graph: len(graph.nodes))


def laid_out(graph: OpGraph) -> tuple[RunProgram, list[int]]:
    """The torq_hl of a graph in its final order, with the address of every buffer."""
    plan = schedule(graph, CONFIG, budget=0.65)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    ordered = order(ResultPlacer(Needs.of(with_programs(improved, graph, CONFIG), CONFIG), CONFIG.lram_usable))
    assert ordered is not None
    addresses = [0] * len(ordered.program.buffers)
    for buffer, offset in ordered.offsets.items():
        addresses[buffer] = CONFIG.lram_reserve + offset
    return ordered.program, addresses


@functools.cache
def encoder() -> tuple[OpGraph, RunProgram, list[int]]:
    """The encoder layer, laid out."""
    graph = encoder_graph()
    return graph, *laid_out(graph)


def lowered_while_encoding(
    graph: OpGraph, program: RunProgram, addresses: list[int], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Holds every image against the tasks of its call; returns how many calls were lowered for them, and how many
    there are."""
    lowered: list[str] = []

    def counting(graph, node, *rest):  # type: ignore[no-untyped-def]
        lowered.append(node.name)
        return invocation_tasks(graph, node, *rest)

    monkeypatch.setattr("torq_byoc.codegen.call_images.invocation_tasks", counting)
    nodes = {node.name: node for node in graph.nodes}
    images = CallImages(program, graph, CONFIG)
    runs = [op for op in program.ops if isinstance(op, SliceRun)]
    for run in runs:
        tasks = invocation_tasks(graph, nodes[run.node], CONFIG, run.invocation, addresses)
        assert images.image(run, addresses) == encode_slice_program(tasks[slice(*run.tasks)]), run.node
    return len(lowered), len(runs)


def test_calls_that_are_alike_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered, runs = lowered_while_encoding(*encoder(), monkeypatch)
    assert lowered < runs


def test_layers_that_are_alike_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered, runs = lowered_while_encoding(*encoder(), monkeypatch)
    graph = encoder_graph(layers=3)
    more, all_runs = lowered_while_encoding(graph, *laid_out(graph), monkeypatch)
    assert (more - lowered) / (all_runs - runs) < 0.2 * lowered / runs


def test_nodes_with_other_tables_are_of_another_kind() -> None:
    graph = encoder_graph(layers=2)
    tables = [node for node in graph.nodes if node.op == "table"]
    first, again = (node for node in tables if node.name.endswith("norm1_11"))
    kinds = node_kinds(graph)
    assert kinds[first.name] == kinds[again.name]
    changed = again.attrs["table"].copy()
    changed[7, 1] += 1
    nodes = [replace(node, attrs={**node.attrs, "table": changed}) if node is again else node for node in graph.nodes]
    kinds = node_kinds(replace(graph, nodes=nodes))
    assert kinds[first.name] != kinds[again.name]


def test_nodes_that_clip_at_another_zero_are_of_another_kind() -> None:
    builder = GraphBuilder("zeros")
    x = builder.input("x", (4, 16), DType.BF16)
    for bound in (0.0, -0.0):
        rescale = Rescale(np.zeros(1, np.float32), clip_min=bound)
        builder.output(builder.emit("act", [x], (4, 16), DType.BF16, rescale=rescale))
    assert len(set(node_kinds(builder.finish()).values())) == 2


def test_kernels_with_borders_are_lowered_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residual_graph(3)
    lowered, runs = lowered_while_encoding(graph, *laid_out(graph), monkeypatch)
    assert lowered == runs


@pytest.mark.parametrize("seed", (901, 904, 906, 907, 911, 913, 923, 936))
def test_images_of_random_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(seed, ("int8", "uint8", "int16", "float32")[seed % 4])
    lowered_while_encoding(graph, *laid_out(graph), monkeypatch)


def test_buffers_on_top_of_each_other_are_no_pattern() -> None:
    graph, program, addresses = encoder()
    nodes = {node.name: node for node in graph.nodes}
    run = next(op for op in program.ops if isinstance(op, SliceRun) and nodes[op.node].op == "matmul")
    product = run.invocation
    shifted = addresses.copy()
    shifted[product.inputs[0].buffer] = shifted[product.output.buffer]
    for table in (shifted, addresses):
        images = CallImages(program, graph, CONFIG)
        for step in (0, 4096):
            moved = [address + step * (buffer == product.output.buffer) for buffer, address in enumerate(table)]
            tasks = invocation_tasks(graph, nodes[run.node], CONFIG, product, moved)
            assert images.image(run, moved) == encode_slice_program(tasks[slice(*run.tasks)])


def test_base_fields_are_where_bases_are_encoded() -> None:
    graph, program, addresses = encoder()
    nodes = {node.name: node for node in graph.nodes}
    rng = np.random.default_rng(1)
    runs = [op for op in program.ops if isinstance(op, SliceRun)]
    for run in (runs[index] for index in rng.integers(0, len(runs), 40)):
        tasks = invocation_tasks(graph, nodes[run.node], CONFIG, run.invocation, addresses)[slice(*run.tasks)]
        data = encode_slice_program(tasks)
        bases = [ndl.base for task in tasks for ndl in task.ndls if ndl.base]
        assert [base for _, base in base_fields(data)] == bases
        assert all(data[offset : offset + 4] == base.to_bytes(4, "little") for offset, base in base_fields(data))
