"""The database of tuning records: what shares a key, what a file may hold, and what a compilation makes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from explore.tuning.workloads import renamed, small_workload
from schedules.models import flattened, residual

import torq_byoc
from tests.cli.tools import INPUT, conv_model, samples
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.record_keys import graph_key, layer_key, named, numbered
from torq_byoc.compilation.tuning_records import RecordDatabase
from torq_byoc.errors import ScheduleError
from torq_byoc.explore.tuning.model import TuningPlan, tune_model
from torq_byoc.explore.tuning.strategies import load_strategy
from torq_byoc.npu_model.presets import load_config
from torq_byoc.report.summary import headline

GRAPH = residual(size=14, channels=8, blocks=1)


@pytest.fixture(scope="module")
def database() -> RecordDatabase:
    """The records of a default schedule."""
    workload = small_workload()
    found = workload.measure(None)
    layers = {"ab" * 32: next(iter(found.record.nodes.values()))}
    return RecordDatabase().with_result(
        workload.options.config,
        workload.graph,
        found.record,
        model="block.onnx",
        profile="reference",
        cycles=(found.cycles, found.cycles),
        layers=layers,
    )


def test_names_and_weights_are_not_part_of_a_key():
    other = renamed(GRAPH, "x_")
    assert graph_key(other) == graph_key(GRAPH)
    resident = {name: True for name in GRAPH.tensors}
    for mine, theirs in zip(GRAPH.nodes, other.nodes, strict=True):
        moved = {f"x_{name}": value for name, value in resident.items()}
        assert layer_key(GRAPH, mine, resident) == layer_key(other, theirs, moved)


def test_whatever_costs_something_is_part_of_a_key():
    swapped = replace(GRAPH, nodes=(*GRAPH.nodes[:-1], replace(GRAPH.nodes[-1], inputs=GRAPH.nodes[-1].inputs[::-1])))
    more = replace(GRAPH, outputs=(*GRAPH.outputs, GRAPH.nodes[0].output))
    others = [residual(16, 8, 1), residual(14, 16, 1), residual(14, 8, 2), swapped, more]
    assert len({graph_key(graph) for graph in (GRAPH, *others)}) == 6
    assert layer_key(GRAPH, GRAPH.nodes[1], {}) != layer_key(GRAPH, GRAPH.nodes[1], {GRAPH.nodes[0].output: True})


def test_a_record_moves_to_a_graph_with_other_names():
    record = small_workload().measure(None).record
    other = renamed(GRAPH, "x_")
    moved = named(numbered(record, GRAPH), other)
    assert set(moved.nodes) == {f"x_{name}" for name in record.nodes}
    assert small_workload(other).measure(moved).cycles == small_workload().measure(record).cycles


def test_aliases_keep_their_place():
    graph = flattened()
    record = small_workload(graph).measure(None).record
    assert named(numbered(record, graph), graph) == record


def test_a_file_comes_back_as_it_was(database, tmp_path):
    path = tmp_path / "records.json"
    database.write(path)
    again = RecordDatabase.read(path)
    assert again == database and again.dumps() == path.read_text() == database.dumps()
    entry = again.entry(load_config("sl2610"), GRAPH)
    assert entry is not None and entry.decisions(GRAPH) == small_workload().measure(None).record


def test_a_machine_is_known_by_what_it_can_do(database):
    config = load_config("sl2610")
    assert database.entry(replace(config, name="another name"), GRAPH) is not None
    assert database.entry(replace(config, slices=4), GRAPH) is None
    assert database.entry(config, residual(16, 8, 1)) is None


def spoiled(database: RecordDatabase, **changes: object) -> str:
    data = json.loads(database.dumps())
    (machine,) = data["machines"].values()
    (entry,) = machine["graphs"].values()
    entry.update(changes)
    return json.dumps(data)


FILES = {
    "empty": lambda db: "",
    "no JSON": lambda db: "tune everything",
    "cut off": lambda db: db.dumps()[:-40],
    "a list": lambda db: "[]",
    "no format": lambda db: '{"machines": {}}',
    "newer format": lambda db: '{"format": 2, "anything": []}',
    "unknown field": lambda db: '{"format": 1, "weather": "fine"}',
    "deeply nested": lambda db: '{"format": 1, "machines": ' + "[" * 100_000,
    "cycles as text": lambda db: spoiled(db, cycles="few"),
    "negative cycles": lambda db: spoiled(db, cycles=-1),
    "worse than the default": lambda db: spoiled(db, cycles=10**9),
    "unknown profile": lambda db: spoiled(db, profile="optimistic"),
    "record with an unknown field": lambda db: spoiled(db, record={"format": 1, "tiles": []}),
    "record of a newer format": lambda db: spoiled(db, record={"format": 9}),
    "group without nodes": lambda db: spoiled(db, record={"format": 1, "groups": [{"axis": 1}]}),
    "layer of a wrong type": lambda db: db.dumps().replace('"layers": {', '"layers": {"x": {"tile": "big"}, '),
}


@pytest.mark.parametrize("case", FILES)
def test_what_is_no_database_is_refused(case, database, tmp_path):
    path = tmp_path / "records.json"
    path.write_text(FILES[case](database))
    with pytest.raises(ScheduleError) as caught:
        RecordDatabase.read(path)
    assert caught.value.where == str(path) and caught.value.why and "torq tune" in caught.value.remedy


def compiled(records: RecordDatabase | None = None, **options: object) -> torq_byoc.CompiledModel:
    return torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}, records=records, **options)


@pytest.fixture(scope="module")
def found() -> tuple[int, RecordDatabase]:
    """Cycles of the tuned test model, and its records."""
    options = Options(precision="int8", calibration={INPUT: samples()})
    tuned = tune_model(conv_model(), options, TuningPlan(load_strategy("random"), 30), name="tiny")
    assert tuned.cycles <= tuned.default_cycles
    return tuned.cycles, tuned.database


def test_a_compilation_with_records_gives_exactly_what_was_found(found):
    cycles, database = found
    model, plain = compiled(database), compiled()
    assert headline(model)["cycles"]["total"] == cycles <= headline(plain)["cycles"]["total"]
    assert any("decided by a tuning record of tiny" in note for note in model.facts.notes)
    data = {INPUT: samples(1, seed=4)}
    assert (model.run(data)["y"] == plain.run(data)["y"]).all()
    assert compiled(database).to_bytes() == model.to_bytes()


def test_unknown_graphs_and_machines_are_said_to_be_unknown(found):
    _, database = found
    notes = compiled(database, hw="4slice").facts.notes
    assert any("know nothing of the machine 4slice" in note for note in notes)
    other = torq_byoc.compile(conv_model(height=12), records=database)
    assert any("know nothing of this graph" in note for note in other.facts.notes)
    assert not any("tuning record" in note for note in compiled().facts.notes)


def test_a_schedule_by_hand_comes_first(found):
    _, database = found
    by_hand = torq_byoc.compile(
        conv_model(),
        precision="int8",
        calibration={INPUT: samples()},
        records=database,
        schedule=_no_groups(),
    )
    assert any("fixed by hand" in note for note in by_hand.facts.notes)


def _no_groups():
    from torq_byoc.schedules.record import DecisionRecord

    return DecisionRecord(groups=())


def test_a_promise_that_is_not_kept_is_told(found):
    _, database = found
    stale = RecordDatabase.loads(spoiled(database, cycles=1), "test")
    assert any("tune again" in note for note in compiled(stale).facts.notes)


WRONG = {
    "no such node": {"format": 1, "nodes": {"99": {"buffers": 1}}},
    "no number": {"format": 1, "nodes": {"conv": {"buffers": 1}}},
    "tile of another rank": {"format": 1, "nodes": {"0": {"tile": [1]}}, "groups": []},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_record_that_does_not_suit_its_own_graph_is_an_error(case, found):
    _, database = found
    wrong = RecordDatabase.loads(spoiled(database, record=WRONG[case]), "test")
    with pytest.raises(ScheduleError, match="without the records"):
        compiled(wrong)


def test_layers_of_another_model_are_where_a_search_starts(found):
    from torq_byoc.explore.tuning.model import changed_layers, known_starts

    workload = small_workload()
    default = workload.measure(None)
    name, node = next((n, node) for node in GRAPH.nodes if (n := node.name) in default.record.nodes)
    changed = replace(default.record.nodes[name], split_axis=(None,))
    best = replace(default.record, nodes={**default.record.nodes, name: changed})
    layers = changed_layers(GRAPH, default.record, best)
    assert list(layers.values()) == [changed] and list(layers) == [layer_key(GRAPH, node, best.resident)]
    database = RecordDatabase().with_result(
        workload.options.config,
        residual(16, 8, 1),
        small_workload(residual(16, 8, 1)).measure(None).record,
        model="another",
        profile="reference",
        cycles=(1, 1),
        layers=layers,
    )
    ((words, record),) = known_starts(workload, database, default.record)
    assert words == "layers as in other models" and record == best
