"""Operands of calls that are alike take the same places in turn, so that one program serves several calls."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.infra import check_places, heavy_tailed

from torq_byoc.codegen import generate as stage
from torq_byoc.codegen.arrangements import arranged_by_twins
from torq_byoc.codegen.build import build
from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.clean_copies import clean_copies
from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.placement import Early
from torq_byoc.codegen.programs import with_programs
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.presets import preset
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import verify
from torq_byoc.schedules.plan import schedule

CONFIG = NpuConfig()


def layers(count: int, unlike: bool = False) -> OpGraph:
    """Dense layers of one shape on four rows; weights take longer to load than the slices work."""
    rng = np.random.default_rng(count)
    builder = GraphBuilder("layers")
    x = builder.input("x", (1, 64, 2, 2), DType.INT8)
    for index in range(count):
        weights = builder.constant(heavy_tailed(rng, (64, 64, 1, 1)), f"w{index}")
        scale, shift = rng.integers(1 << 20, 1 << 22, 64).astype(np.int32), 32 + (index if unlike else 0)
        rescale = Rescale(rng.integers(-900, 900, 64).astype(np.int32), scale, shift, 3, axis=1)
        attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "groups": 1, "pad_value": 3}
        x = builder.emit("conv2d", [x, weights], (1, 64, 2, 2), DType.INT8, attrs=attrs, rescale=rescale)
    builder.output(x)
    return builder.finish()


def program_bytes(generated: GeneratedProgram) -> int:
    return sum(entry.get("in_program", 0) for entry in generated.layer_bytes.values())


def exact(graph: OpGraph, config: NpuConfig = CONFIG) -> GeneratedProgram:
    generated = generate(graph, schedule(graph, config), config)
    verify(generated.program)
    x = {"x": heavy_tailed(np.random.default_rng(0), graph.tensors["x"].shape)}
    found, expected = Simulator(generated.program).run(x), evaluate(graph, x)
    np.testing.assert_array_equal(found[graph.outputs[0]], expected[graph.outputs[0]])
    return generated


def test_layers_of_one_shape_do_with_the_programs_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = exact(layers(4)), exact(layers(12))
    assert program_bytes(many) == program_bytes(few)
    monkeypatch.setattr(stage, "arranged_by_twins", lambda *arguments: None)
    without = exact(layers(12))
    assert program_bytes(without) >= 2 * program_bytes(many)
    assert many.timeline.total_cycles < without.timeline.total_cycles


def test_layers_that_shift_otherwise_have_programs_of_their_own() -> None:
    graph = layers(6, unlike=True)
    plan = schedule(graph, CONFIG)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    program = with_programs(improved, graph, CONFIG)
    calls = CallImages(program, graph, CONFIG)
    assert arranged_by_twins(program, CONFIG, Early(), clean_copies(program), calls) is None
    exact(graph)


@pytest.mark.parametrize("lram", ["sl2610", "lram64", "lram128"])
def test_buffers_in_one_place_are_never_there_at_one_time(lram: str) -> None:
    config = preset(lram)
    graph = layers(8)
    plan = schedule(graph, config)
    improved, _ = run_passes(build(graph, plan, config), passes_for(plan, config))
    program = with_programs(improved, graph, config)
    ordered = arranged_by_twins(program, config, Early(), clean_copies(program), CallImages(program, graph, config))
    assert ordered is not None
    check_places(program, ordered, config)
    exact(graph, config)
