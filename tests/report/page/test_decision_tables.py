"""Decisions as tables, whatever fields they have."""

from __future__ import annotations

import json
from types import SimpleNamespace

from torq_byoc.report.page.decisions import decisions


def _tables(record: dict) -> list:
    facts = SimpleNamespace(symbol="torq_0", decisions=json.dumps(record))
    (found,) = decisions(SimpleNamespace(partitions=[SimpleNamespace(facts=facts)]))
    assert found.partition == "torq_0" and json.loads(found.text) == record
    return [(table.title, table.columns, table.rows) for table in found.tables]


def test_groups_residency_and_nodes():
    found = _tables(
        {
            "format": 1,
            "nodes": {"conv": {"tile": [1, 8], "split_axis": None}, "pool": {"tile": [4], "buffers": 2}},
            "resident": {"t": True, "u": False},
            "groups": [{"nodes": ["conv", "pool"], "axis": 2, "split_axes": [1, None]}],
        }
    )
    assert found == [
        ("fused groups", ("nodes", "axis", "split_axes"), (("conv pool", "2", "1 null"),)),
        ("tensors that stay in LRAM", ("name", "value"), (("t", "true"), ("u", "false"))),
        ("nodes", ("name", "tile", "split_axis", "buffers"), (("conv", "1 8", "null", ""), ("pool", "4", "", "2"))),
    ]


def test_fields_and_sections_to_come_are_shown():
    found = _tables({"nodes": {"conv": {"kernel": {"name": "wide"}}}, "weights": {"w": "pinned"}, "resident": {}})
    assert found == [
        ("nodes", ("name", "kernel"), (("conv", '{"name": "wide"}'),)),
        ("weights", ("name", "value"), (("w", "pinned"),)),
    ]
