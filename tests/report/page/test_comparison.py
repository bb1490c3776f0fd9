"""Two compiles against each other: rows that belong together, changes that add up."""

from __future__ import annotations

from pathlib import Path

import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, mixed_model, samples
from torq_byoc.errors import CommandLineError
from torq_byoc.report.page.comparison import FIGURES, Side, compare, require_same_model
from torq_byoc.report.page.naming import earlier_naming
from torq_byoc.report.summary import summarize


def _row(node: str, cycles: int, inward: int = 0, transfers: int = 0) -> dict:
    return {"node": node, "cycles": cycles, "bytes": {"in_weights": inward}, "transfers": {"in": transfers, "out": 0}}


def _summary(total: int, *rows: dict) -> dict:
    """30 bytes in 3 transfers belong to no layer."""
    moved = 30 + sum(row["bytes"]["in_weights"] for row in rows)
    transfers = 3 + sum(row["transfers"]["in"] for row in rows)
    dma = {"in_bytes": moved, "out_bytes": 0, "in_transfers": transfers, "out_transfers": 0}
    return {"cycles": {"total": total}, "dma": dma, "layers": list(rows)}


def test_layers_that_share_a_node_stand_together():
    before = _summary(100, _row("conv", 60, 7, 2), _row("relu", 20, 5, 1), _row("old", 9), _row("add", 11))
    after = _summary(70, _row("conv+relu", 50, 6, 1), _row("add", 12), _row("new", 4))
    found = compare(before, after)
    rows = {pair.name: pair for pair in found.layers}
    assert list(rows) == ["conv+relu", "add", "new", "old"]
    assert rows["conv+relu"].before == Side(80, 12, 0, 3, 0) and rows["conv+relu"].after == Side(50, 6, 0, 1, 0)
    assert rows["conv+relu"].change == Side(-30, -6, 0, -2, 0)
    assert rows["old"].after is None and rows["old"].change.cycles == -9
    assert rows["new"].before is None and rows["new"].change.cycles == 4
    assert found.total.change.cycles == -30
    assert found.sequencer.before == found.sequencer.after == Side(0, 30, 0, 3, 0)


def test_an_operator_lowered_to_several_layers_is_one_row():
    before = _summary(9, _row("softmax", 1), _row("softmax", 2), _row("softmax", 4))
    after = _summary(9, _row("softmax", 8), _row("softmax", 16))
    (pair,) = compare(before, after).layers
    assert (pair.before.cycles, pair.after.cycles) == (7, 24)
    assert (pair.before_rows, pair.after_rows) == ((0, 1, 2), (0, 1))


def test_chains_of_shared_nodes_are_one_row():
    before = _summary(9, _row("a+b", 1), _row("c+d", 2))
    after = _summary(9, _row("a", 8), _row("b+c", 16), _row("d", 32))
    (pair,) = compare(before, after).layers
    assert (pair.before.cycles, pair.after.cycles) == (3, 56)


def test_the_earlier_compile_takes_numbers_and_colours_of_the_table():
    before = _summary(9, _row("relu", 1), _row("gone", 1), _row("conv", 1))
    after = _summary(9, _row("add", 1), _row("conv+relu", 1))
    naming = earlier_naming(before["layers"], compare(before, after))
    assert [naming.name(layer) for layer in range(3)] == ["2 relu", "gone", "2 conv"]
    assert [naming.style(layer) for layer in range(3)] == ["c1", "several", "c1"]


@pytest.fixture(scope="module")
def compiles():
    def build(**options):
        return torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}, **options)

    return build(disable_passes=["loop-invariant", "prefetch"]), build(), build(hw="sl2610-1slice")


def test_layers_and_sequencer_account_for_the_whole_change(compiles):
    before, after, other_machine = (summarize(model) for model in compiles)
    for left, right in ((before, after), (after, other_machine)):
        found = compare(left, right)
        for name in FIGURES[1:]:
            parts = [pair.change for pair in (*found.layers, found.sequencer)]
            assert sum(getattr(part, name) for part in parts) == right["dma"][name] - left["dma"][name]
        assert found.total.change.cycles == right["cycles"]["total"] - left["cycles"]["total"]
    assert compare(before, after).total.change.cycles < 0


def test_a_compile_against_itself_changes_nothing(compiles):
    summary = summarize(compiles[1])
    found = compare(summary, summary)
    assert {pair.change for pair in (*found.layers, found.sequencer, found.total)} == {Side()}
    assert [pair.name for pair in found.layers] == [row["node"] for row in summary["layers"]]


def test_another_model_is_refused(compiles):
    require_same_model(compiles[0].facts, compiles[2].facts, Path("x.torq"))
    require_same_model(compiles[0].facts, torq_byoc.compile(conv_model()).facts, Path("bf16.torq"))
    with pytest.raises(CommandLineError, match="another model") as refusal:
        require_same_model(compiles[0].facts, torq_byoc.compile(mixed_model()).facts, Path("x.torq"))
    assert "x.torq" in refusal.value.where and "[1, 4, 16]" in refusal.value.why
