"""The story of a layer: every level has its say, counts are those of the program, unknown names are refused."""

from __future__ import annotations

import pytest

from benchmarks.experiments import max_pool_model
from torq_byoc.compilation.options import Options
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.compiler import compile_model
from torq_byoc.errors import ScheduleError
from torq_byoc.report.story import Level, layer_story, recorder


@pytest.fixture(scope="module")
def recorded() -> tuple[CompiledModel, list[Level]]:
    levels: list[Level] = []
    model = max_pool_model((1, 8, 12, 40), 3, 1, 1)
    return compile_model(model, Options(observe=recorder(levels)), name="pool"), levels


def test_every_level_is_told_in_order(recorded: tuple[CompiledModel, list[Level]]) -> None:
    compiled, levels = recorded
    name = compiled.partitions[0].facts.layers[0].node
    story = list(layer_story(compiled, levels, name))
    heads = [line.split(":")[0] for line in story if not line.startswith(" ")]
    assert heads[1:3] == ["tensor", "scheduled"] and heads[-1] == "torq_hw"
    told = [head.removeprefix("torq_hl/") for head in heads if head.startswith("torq_hl/")]
    assert told[0] == "build" and told[-1] == "share-programs"
    assert told.index("fusion") < told.index("dead-stores") < told.index("order")


def test_an_onnx_node_stands_for_all_its_layers(recorded: tuple[CompiledModel, list[Level]]) -> None:
    compiled, levels = recorded
    layers = [layer.node for layer in compiled.partitions[0].facts.layers]
    story = list(layer_story(compiled, levels, "max_pool"))
    assert len(layers) == 2
    assert [line.split(" ")[0] for line in story if line.endswith("(max_pool)")] == layers


def test_a_result_that_stays_is_stored_until_the_store_is_found_dead(
    recorded: tuple[CompiledModel, list[Level]],
) -> None:
    compiled, levels = recorded
    (layer, _) = compiled.partitions[0].facts.layers
    story = [line for line in layer_story(compiled, levels, layer.node) if line.startswith("torq_hl/")]
    counts = {line.split(":")[0].removeprefix("torq_hl/"): line for line in story}
    assert f"{layer.tiles} stores" in counts["build"]
    assert "0 stores" in counts["dead-stores"], "what the second half reads stays in LRAM"


def test_unknown_layers_are_refused_by_name(recorded: tuple[CompiledModel, list[Level]]) -> None:
    with pytest.raises(ScheduleError, match="no layer is named 'max_pol'"):
        list(layer_story(*recorded, "max_pol"))
