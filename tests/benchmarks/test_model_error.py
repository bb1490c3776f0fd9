"""Layers cut out of a network: complete, in order, and computing the same on their own."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.model_error import Comparison, comparisons, cut_out, summary, units
from benchmarks.zoo import Job, job, networks, op_graphs
from tests.end_to_end.networks import Network
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.reference import evaluate
from torq_byoc.schedules.scheduled import Schedule


@pytest.fixture(scope="module")
def small() -> Job:
    (network,) = networks(["dscnn_kws_int8"])
    if not network.available:
        pytest.skip(f"{network.path} is not here")
    return job(network, "int8")


@pytest.fixture(scope="module")
def scheduled(small: Job) -> tuple[OpGraph, Schedule]:
    (graph,) = op_graphs(small).values()
    return graph, fastest_candidate(graph, small.options, StageClock()).schedule


def test_units_cover_the_schedule_in_order(scheduled: tuple[OpGraph, Schedule]) -> None:
    _, plan = scheduled
    found = units(plan)
    assert [entry.node for entries in found for entry in entries] == [entry.node for entry in plan.nodes]
    assert [len({entry.decision for entry in entries}) for entries in found] == [1] * len(found)


def test_a_cut_computes_what_it_computed_inside(scheduled: tuple[OpGraph, Schedule], small: Job) -> None:
    graph, plan = scheduled
    generator = np.random.default_rng(0)
    feeds = {
        name: generator.integers(-128, 128, graph.tensors[name].shape).astype(graph.tensors[name].dtype.value)
        for name in graph.inputs
    }
    whole = evaluate(graph, feeds)
    for entries in units(plan):
        cut = cut_out(graph, [entry.node for entry in entries])
        own = evaluate(cut, {name: whole[name] for name in cut.inputs})
        for name in cut.outputs:
            np.testing.assert_array_equal(own[name], whole[name])


def test_the_model_knows_the_cycles_of_every_layer(small: Job) -> None:
    figures = summary(list(comparisons(small)))
    assert figures["layers"] >= 5
    assert figures["mean"] <= 0.03 and figures["worst"] <= 0.1


def test_the_summary_weighs_by_cycles() -> None:
    found = [Comparison("n", "a", "conv2d", 1, 110.0, 100), Comparison("n", "b", "conv2d", 1, 270.0, 300)]
    figures = summary(found)
    assert figures["mean"] == pytest.approx(0.1) and figures["worst"] == pytest.approx(0.1)
    assert figures["weighed_mean"] == pytest.approx(0.1)
    assert found[1].error == pytest.approx(-0.1)


def test_networks_are_known_by_name_or_path(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    assert networks([str(path)]) == [Network("own", str(path))]
    assert [network.name for network in networks(["dtln_2", "resnet8_int8"])] == ["dtln_2", "resnet8_int8"]
