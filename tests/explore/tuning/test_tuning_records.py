"""The database of tuning records: what shares a key, what a file may hold, and what a compilation makes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from explore.tuning.workloads import poor_workload, renamed, small_workload
from schedules.models import flattened, residual

import torq_byoc
from tests.cli.tools import INPUT, SHAPE, conv_model, samples
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.record_keys import Setting, graph_key, layer_key, named, numbered
from torq_byoc.compilation.tuning_records import RecordDatabase
from torq_byoc.errors import ScheduleError
from torq_byoc.explore.tuning.model import SearchJob, TuningPlan, tune_model
from torq_byoc.explore.tuning.strategies import load_strategy
from torq_byoc.explore.tuning.tuner import Budget
from torq_byoc.npu_model.presets import load_config
from torq_byoc.report.summary import headline
from torq_byoc.schedules.record import DecisionRecord, NodeOverride

GRAPH = residual(size=14, channels=8, blocks=1)


@pytest.fixture(scope="module")
def database() -> RecordDatabase:
    """The records of a default schedule."""
    workload = small_workload()
    found = workload.measure(None)
    layers = {"ab" * 32: NodeOverride(tile=(1, 8, 7, 14), buffers=2)}
    return RecordDatabase().with_result(
        workload.options.config,
        workload.graph,
        found.record,
        model="block.onnx",
        setting=Setting(),
        effort=1,
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
    entry = again.entry(load_config("sl2610"), GRAPH, Setting())
    assert entry is not None and entry.decisions(GRAPH) == small_workload().measure(None).record


def test_a_machine_is_known_by_what_it_can_do(database):
    config = load_config("sl2610")
    assert database.entry(replace(config, name="another name"), GRAPH, Setting()) is not None
    assert database.entry(replace(config, slices=4), GRAPH, Setting()) is None
    assert database.entry(config, residual(16, 8, 1), Setting()) is None


def spoiled(database: RecordDatabase, **changes: object) -> str:
    data = json.loads(database.dumps())
    (machine,) = data["machines"].values()
    ((entry,),) = machine["graphs"].values()
    entry.update(changes)
    return json.dumps(data)


def twice(database: RecordDatabase) -> str:
    data = json.loads(database.dumps())
    (machine,) = data["machines"].values()
    (entries,) = machine["graphs"].values()
    entries *= 2
    return json.dumps(data)


PAIR = {"nodes": ["1", "2"], "axis": 2, "size": 7, "split_axes": [1, 1], "buffers": 2}
FILES = {
    "empty": lambda db: "",
    "no JSON": lambda db: "tune everything",
    "cut off": lambda db: db.dumps()[:-40],
    "a list": lambda db: "[]",
    "no format": lambda db: '{"machines": {}}',
    "newer format": lambda db: '{"format": 3, "anything": []}',
    "unknown field": lambda db: '{"format": 2, "weather": "fine"}',
    "deeply nested": lambda db: '{"format": 2, "machines": ' + "[" * 100_000,
    "a key twice": lambda db: db.dumps().replace('"effort": 1,', '"effort": 1, "effort": 2,'),
    "a node of a record twice": lambda db: db.dumps().replace('"resident": {', '"resident": {"0": true, "0": false, '),
    "no cycles": lambda db: spoiled(db, cycles=0),
    "more cycles than anything takes": lambda db: spoiled(db, cycles=10**18, default_cycles=10**18),
    "cycles beyond 64 bits": lambda db: spoiled(db, cycles=10**30, default_cycles=10**30),
    "unsorted passes": lambda db: spoiled(db, disabled_passes=["residency", "fusion"]),
    "two records for one setting": lambda db: twice(db),
    "cycles as text": lambda db: spoiled(db, cycles="few"),
    "negative cycles": lambda db: spoiled(db, cycles=-1),
    "worse than the default": lambda db: spoiled(db, cycles=10**9),
    "unknown profile": lambda db: spoiled(db, profile="optimistic"),
    "record with an unknown field": lambda db: spoiled(db, record={"format": 1, "tiles": []}),
    "record of a newer format": lambda db: spoiled(db, record={"format": 9}),
    "group without nodes": lambda db: spoiled(db, record={"format": 1, "groups": [{"axis": 1}]}),
    "portion below 1": lambda db: spoiled(db, record={"nodes": {"0": {"portion": [-1]}}}),
    "portion beyond any tensor": lambda db: spoiled(db, record={"nodes": {"0": {"portion": [10**15]}}}),
    "empty tile": lambda db: spoiled(db, record={"nodes": {"0": {"tile": [1, 0, 4, 4]}}}),
    "three buffers": lambda db: spoiled(db, record={"nodes": {"0": {"buffers": 3}}}),
    "axis below 0": lambda db: spoiled(db, record={"nodes": {"0": {"split_axis": -1}}}),
    "band of nothing": lambda db: spoiled(db, record={"groups": [{**PAIR, "size": 0}]}),
    "node alone and in a group": lambda db: spoiled(db, record={"nodes": {"1": {"buffers": 1}}, "groups": [PAIR]}),
    "node in two groups": lambda db: spoiled(db, record={"groups": [PAIR, PAIR]}),
    "layer with an empty portion": lambda db: db.dumps().replace('"layers": {', '"layers": {"x": {"portion": [0]}, '),
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


def total(model: torq_byoc.CompiledModel, profile: str = "reference") -> int:
    return headline(model, profile)["cycles"]["total"]


def with_a_slow_record(database: RecordDatabase) -> RecordDatabase:
    """The database with a record that is far slower than the default."""
    slow = {"nodes": {"0": {"tile": [1, 6, 1, SHAPE[3]], "buffers": 1}}, "resident": {"2": False}, "groups": []}
    return RecordDatabase.loads(spoiled(database, record=slow), "test")


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
    assert total(model) == cycles <= total(plain)
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
    return DecisionRecord(groups=())


def test_a_promise_that_is_not_kept_is_told(found):
    cycles, database = found
    stale = RecordDatabase.loads(spoiled(database, cycles=1), "test")
    (note,) = [note for note in compiled(stale).facts.notes if "tune again" in note]
    assert "the record is used" in note
    assert total(compiled(stale)) == cycles


WRONG = {
    "no such node": {"format": 1, "nodes": {"99": {"buffers": 1}}},
    "no number": {"format": 1, "nodes": {"conv": {"buffers": 1}}},
    "tile of another rank": {"format": 1, "nodes": {"0": {"tile": [1]}}, "groups": []},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_record_that_does_not_suit_its_own_graph_is_an_error(case, found):
    _, database = found
    wrong = RecordDatabase.loads(spoiled(database, record=WRONG[case]), "records of mine.json")
    with pytest.raises(ScheduleError, match="without the records") as caught:
        compiled(wrong)
    assert caught.value.where.startswith("records of mine.json: ")


def test_layers_of_another_model_are_where_a_search_starts(found):
    from torq_byoc.explore.tuning.model import changed_layers, known_starts

    workload = small_workload()
    default = workload.measure(DecisionRecord(groups=()))
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
        setting=Setting(),
        effort=1,
        cycles=(1, 1),
        layers=layers,
    )
    ((words, record),) = known_starts(workload, database, default.record)
    assert words == "layers as in other models" and record == best


def test_a_record_that_became_slower_than_the_default_is_not_used(found):
    slow, plain = with_a_slow_record(found[1]), compiled()
    model = compiled(slow)
    assert total(model) == total(plain)
    assert model.partitions == plain.partitions
    (note,) = [note for note in model.facts.notes if "used instead" in note]
    assert "tune again" in note and f"the default takes {total(plain)}" in note


def test_a_kept_promise_is_doubted_where_the_default_was_searched_for_longer(found):
    cycles, database = found
    weak = RecordDatabase.loads(spoiled(database, effort=0), "test")
    (note,) = [note for note in compiled(weak).facts.notes if "decided by a tuning record" in note]
    assert "effort 0, not 1" in note and total(compiled(weak)) == cycles
    (note,) = [note for note in compiled(database).facts.notes if "decided by a tuning record" in note]
    assert "the default takes" not in note


@pytest.mark.parametrize("passes", [("residency",), ("fusion",), ("fusion", "residency")])
def test_a_record_holds_for_the_passes_it_was_found_with(passes, found):
    _, database = found
    model = compiled(database, disable_passes=passes)
    assert model.partitions == compiled(disable_passes=passes).partitions
    (note,) = [note for note in model.facts.notes if "tuning records" in note]
    assert "in other settings only (profile reference)" in note and f"without {', '.join(passes)}" in note


def test_settings_do_not_disturb_each_other(found):
    cycles, database = found
    options = Options(
        precision="int8",
        calibration={INPUT: samples()},
        records=database,
        disabled_passes=("residency", "fusion", "residency"),
    )
    reduced = tune_model(conv_model(), options, TuningPlan(load_strategy("random"), 3), name="tiny")
    pessimistic = TuningPlan(load_strategy("random"), 3, profile="pessimistic")
    both = tune_model(
        conv_model(), replace(options, records=reduced.database, disabled_passes=()), pessimistic, name="tiny"
    )
    assert RecordDatabase.loads(both.database.dumps(), "again") == both.database
    assert total(compiled(both.database)) == cycles
    assert total(compiled(both.database, disable_passes=["fusion", "residency"])) == reduced.cycles
    judged = compiled(both.database, profile="pessimistic")
    assert total(judged, "pessimistic") == both.cycles
    assert any("profile pessimistic" in note for note in judged.facts.notes)


def test_a_record_of_another_profile_does_not_decide(found):
    _, database = found
    pessimistic = RecordDatabase.loads(spoiled(database, profile="pessimistic"), "test")
    model = compiled(pessimistic)
    assert model.partitions == compiled().partitions
    assert any("(profile pessimistic), not in profile reference" in note for note in model.facts.notes)


def test_an_unknown_profile_is_refused():
    with pytest.raises(ScheduleError, match="optimistic"):
        compiled(profile="optimistic")


def test_a_better_entry_stays_unless_it_was_measured_again(database):
    config, record = load_config("sl2610"), small_workload().measure(None).record
    known = database.entry(config, GRAPH, Setting())
    assert known is not None
    worse = {"model": "worse", "setting": Setting(), "effort": 1, "cycles": (known.cycles + 1,) * 2, "layers": {}}
    assert database.with_result(config, GRAPH, record, **worse) == database
    entry = database.with_result(config, GRAPH, record, **worse, remeasured=True).entry(config, GRAPH, Setting())
    assert entry is not None and entry.model == "worse"


def test_tuning_replaces_a_promise_that_is_not_kept(found):
    _, database = found
    stale = RecordDatabase.loads(spoiled(database, cycles=1), "test")
    options = Options(precision="int8", calibration={INPUT: samples()}, records=stale)
    again = tune_model(conv_model(), options, TuningPlan(load_strategy("random"), 1), name="tiny").database
    assert not any("tune again" in note for note in compiled(again).facts.notes)


def test_a_schedule_by_hand_is_not_tuned():
    options = Options(precision="int8", calibration={INPUT: samples()}, decisions=_no_groups())
    with pytest.raises(ScheduleError, match="fixed by hand"):
        tune_model(conv_model(), options, TuningPlan(load_strategy("random"), 1), name="tiny")


def test_an_interrupted_search_keeps_what_it_found(tmp_path):
    path = tmp_path / "records.json"
    workload = poor_workload()
    kept: list[RecordDatabase] = []

    def keep(database: RecordDatabase) -> None:
        database.write(path)
        kept.append(database)
        if len(kept) == 2:
            raise KeyboardInterrupt

    job = SearchJob(workload, RecordDatabase(), "poor", lambda words: None, keep)
    with pytest.raises(KeyboardInterrupt):
        job.run(TuningPlan(load_strategy("random"), 1000), Budget(1000))
    entry = RecordDatabase.read(path).entry(workload.options.config, workload.graph, Setting())
    assert RecordDatabase.read(path) == kept[-1] and entry is not None
    first = kept[0].entry(workload.options.config, workload.graph, Setting())
    assert first is not None and entry.cycles < first.cycles < entry.default_cycles
    assert workload.measure(entry.decisions(workload.graph)).cycles == entry.cycles
