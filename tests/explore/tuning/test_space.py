"""Points of a space as decision records: what each kind of knob does to the schedule, and that results stay exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from codegen.infra import convolution
from explore.tuning.workloads import grouped, small_workload, space_around
from schedules.models import residual

from torq_byoc.codegen.generate import generate
from torq_byoc.compilation.options import Options
from torq_byoc.explore.tuning.knobs import BandKnob, BoundaryKnob, ExtentKnob, FieldKnob, Knob, ResidencyKnob
from torq_byoc.explore.tuning.space import Point, Space
from torq_byoc.explore.tuning.workload import Workload
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import verify
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, NodeOverride
from torq_byoc.schedules.scheduled import Schedule

WORKLOAD = small_workload()


@pytest.fixture(scope="module")
def space() -> Space:
    return space_around(WORKLOAD, WORKLOAD.measure(grouped()))


def only(space: Space, kind: type[Knob], option: int = 1, **wanted: object) -> tuple[Knob, Point]:
    """The first knob of a kind with the wanted attributes, and the point where it alone is turned."""
    for index, knob in enumerate(space.knobs):
        if isinstance(knob, kind) and all(getattr(knob, name) == value for name, value in wanted.items()):
            point = list(space.origin)
            point[index] = option
            return knob, tuple(point)
    raise AssertionError(f"no {kind.__name__} with {wanted}")


def applied(space: Space, point: Point) -> Schedule:
    return schedule(WORKLOAD.graph, WORKLOAD.options.config, overrides=space.record(point))


def test_the_origin_is_the_base(space):
    assert space.record(space.origin) == space.base.record
    assert space.changes(space.origin, space.origin) == ()


def test_an_extent_is_taken_and_the_rest_decided_anew(space):
    knob, point = only(space, ExtentKnob)
    assert isinstance(knob, ExtentKnob)
    name = space.subject.nodes[knob.nodes[0]].name
    found = applied(space, point).record.nodes[name]
    assert found.tile is not None and found.tile[knob.axis] == knob.extents[0]
    assert found.order is not None and found.buffers is not None


def test_a_tensor_moves_out_of_lram_and_in(space):
    knob, point = only(space, ResidencyKnob, resident=True)
    assert knob.subject in space.base.record.resident
    assert knob.subject not in applied(space, point).resident


def test_a_group_is_dropped_as_a_whole(space):
    (ends,) = space.base.groups
    _, point = only(space, BoundaryKnob, boundaries=tuple(range(*ends)))
    assert applied(space, point).groups == ()


def test_a_group_grows_by_its_neighbour(space):
    ((first, last),) = space.base.groups
    _, point = only(space, BoundaryKnob, boundaries=(first - 1,))
    (group,) = applied(space, point).groups
    assert group.nodes == tuple(node.name for node in space.subject.nodes[first - 1 : last + 1])


def test_a_group_is_cut_into_what_can_still_be_fused(space):
    ((first, last),) = space.base.groups
    _, point = only(space, BoundaryKnob, boundaries=(last - 1,))
    assert all(len(group.nodes) <= last - first for group in applied(space, point).groups)


def test_bands_become_finer(space):
    (group,) = space.base.groups.values()
    knob, _ = only(space, BandKnob, field="finer")
    assert isinstance(knob, BandKnob)
    _, point = only(space, BandKnob, option=knob.values.index(1) + 1, field="finer")
    (found,) = applied(space, point).record.groups
    assert found.nodes == group.nodes and found.axis == group.axis and found.size < group.size


def test_layers_that_are_alike_change_together():
    workload = small_workload(residual(size=12, channels=8, blocks=2))
    alone = workload.measure(DecisionRecord(groups=()))
    space = space_around(workload, alone)
    index, knob = next(
        (index, knob) for index, knob in enumerate(space.knobs) if isinstance(knob, FieldKnob) and len(knob.nodes) > 1
    )
    record = space.record(tuple(int(place == index) for place in range(len(space.knobs))))
    changed = [space.subject.nodes[member].name for member in knob.nodes]
    assert len({record.nodes[name] for name in changed}) == 1
    assert all(record.nodes[name] != space.base.record.nodes[name] for name in changed)


def test_tiles_are_proposed_for_the_slices_that_a_layer_may_use():
    """Three of four slices divide 56 channels of this plane by 4, all four by 16."""
    builder = GraphBuilder("plane")
    x = builder.input("x", (1, 8, 10, 10), DType.INT8)
    builder.output(convolution(builder, np.random.default_rng(0), x, 56, 1, 1, 0, "conv"))
    options = Options(config=replace(NpuConfig(), slices=4))
    workload = Workload("plane", builder.finish(), options, "reference")
    (node,) = workload.graph.nodes
    fixed = NodeOverride(tile=(1, 32, 10, 10))
    steps = {}
    for slices in (3, 4):
        measured = workload.measure(DecisionRecord({node.name: fixed}, slices={node.name: slices}))
        (knob,) = (
            knob for knob in space_around(workload, measured).knobs if isinstance(knob, ExtentKnob) and knob.axis == 1
        )
        steps[slices] = np.gcd.reduce([extent for extent in knob.extents if extent < 56])
    assert steps == {3: 4, 4: 16}


def test_random_points_are_verified_and_exact(space):
    rng = np.random.default_rng(5)
    graph, config = WORKLOAD.graph, WORKLOAD.options.config
    (name,) = graph.inputs
    data = {name: rng.integers(-128, 128, graph.tensors[name].shape).astype(np.int8)}
    expected = evaluate(graph, data)
    for _ in range(6):
        point = tuple(int(rng.integers(knob.options)) if rng.random() < 0.3 else 0 for knob in space.knobs)
        program = generate(graph, applied(space, point), config).program
        verify(program)
        results = Simulator(program).run(data)
        for output in graph.outputs:
            np.testing.assert_array_equal(results[output], expected[output])


WORDS = {
    "on one slice": FieldKnob("a", (0,), "split_axis", ((None,), (2,))),
    "loops over axes 0, 2, 1, outermost first": FieldKnob("a", (0,), "order", ((0, 2, 1),)),
    "single buffers": FieldKnob("a", (0,), "buffers", (1,)),
    "reduction whole": FieldKnob("a", (0,), "portion", ((), (3, 8))),
    "tile extent 8 along axis 1": ExtentKnob("a", (0,), "tile", 1, (8,)),
    "bands 1 step coarser": BandKnob("a", (0, 1), "bands", "finer", (-1, 2)),
    "bands with double buffers": BandKnob("a", (0, 1), "bands", "buffers", (2,)),
    "bands along axis 3": BandKnob("a", (0, 1), "bands", "axis", (3,)),
}


@pytest.mark.parametrize("words", WORDS)
def test_settings_are_told_in_words(words):
    assert WORDS[words].setting(1) == words


def test_other_settings_are_told_in_words():
    assert WORDS["on one slice"].setting(2) == "divided between the slices along axis 2"
    assert WORDS["on one slice"].unset == "split axis as at first"
    assert WORDS["reduction whole"].setting(2) == "reduction in portions of 3 x 8"
    assert WORDS["bands 1 step coarser"].setting(2) == "bands 2 steps finer"


def test_no_change_is_told_as_it_is_stored():
    for workload, record in ((small_workload(), None), (small_workload(), grouped())):
        space = space_around(workload, workload.measure(record))
        told = [knob.setting(option) for knob in space.knobs for option in range(1, knob.options)]
        assert told and not any(mark in words for words in told for mark in ("None", "_", "(", ": -"))
