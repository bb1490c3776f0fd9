"""Decision records: JSON both ways, partial records, and what is said about broken ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torq_byoc.errors import ScheduleError
from torq_byoc.schedules.record import DecisionRecord, NodeDecision, NodeOverride

FULL = NodeDecision((1, 8, 4, 14), (1, 2, 0, 3), 1, 2)

extents = st.lists(st.integers(1, 1 << 20), max_size=5).map(tuple)
overrides = st.builds(
    NodeOverride,
    tile=st.none() | extents,
    order=st.none() | extents,
    split_axis=st.none() | st.tuples(st.none() | st.integers(0, 4)),
    buffers=st.none() | st.sampled_from((1, 2)),
)


names = st.text(max_size=8)


@given(
    st.dictionaries(names, overrides, max_size=4),
    st.dictionaries(names, st.booleans()),
    st.dictionaries(names, st.integers(1, 4)),
)
def test_text_form_reads_back_as_the_same_record(
    nodes: dict[str, NodeOverride], resident: dict[str, bool], slices: dict[str, int]
) -> None:
    record = DecisionRecord(nodes, resident, None, slices)
    assert DecisionRecord.loads(record.dumps()) == record
    assert json.loads(record.dumps()) == record.to_json()


def test_text_form_is_the_same_whatever_the_order_of_entries() -> None:
    one = DecisionRecord({"a": FULL.to_override(), "b": NodeOverride()}, {"x": True, "y": False})
    two = DecisionRecord({"b": NodeOverride(), "a": FULL.to_override()}, {"y": False, "x": True})
    assert one.dumps() == two.dumps()


def test_partial_entry_keeps_unfixed_fields_open() -> None:
    record = DecisionRecord.from_json({"nodes": {"conv": {"tile": [1, 8, 4, 14], "split_axis": None}}})
    assert record.nodes["conv"] == NodeOverride(tile=(1, 8, 4, 14), split_axis=(None,))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "record"),
        ("[" * 100_000, "record"),
        ("[]", "record"),
        ('{"nodes": []}', "nodes"),
        ('{"colour": 1}', "record"),
        ('{"format": 99}', "format"),
        ('{"format": true}', "format"),
        ('{"format": 1.0}', "format"),
        ('{"nodes": {"conv": 3}}', "node 'conv'"),
        ('{"nodes": {"conv": {"tiles": [1]}}}', "node 'conv'"),
        ('{"nodes": {"conv": {"tile": [1, "8"]}}}', "node 'conv' field 'tile'"),
        ('{"nodes": {"conv": {"tile": 8}}}', "node 'conv' field 'tile'"),
        ('{"nodes": {"conv": {"buffers": true}}}', "node 'conv' field 'buffers'"),
        ('{"nodes": {"conv": {"split_axis": 1.5}}}', "node 'conv' field 'split_axis'"),
        ('{"resident": {"x": 1}}', "resident 'x'"),
        ('{"slices": [1]}', "slices"),
        ('{"slices": {"conv": true}}', "slices of 'conv'"),
    ],
)
def test_broken_records_name_node_and_field(text: str, where: str) -> None:
    with pytest.raises(ScheduleError) as problem:
        DecisionRecord.loads(text)
    assert problem.value.to_json()["where"] == where
