"""What counts as a violation when memory or slices grow."""

from benchmarks.monotonicity import Violation, row, slower_when_larger, steep_halves


def test_only_neighbours_that_get_slower_with_more_are_violations() -> None:
    cycles = {128: 900, 64: 1000, 256: 950, 512: 950}
    assert slower_when_larger("LRAM", cycles) == [Violation("LRAM", 128, 256, 900 / 950)]


def test_a_program_for_the_smaller_machine_only_is_a_violation() -> None:
    assert slower_when_larger("LRAM", {64: 1000, 128: None}) == [Violation("LRAM", 64, 128, 0.0)]
    assert slower_when_larger("LRAM", {64: None, 128: 1000}) == []


def test_half_the_memory_may_cost_a_quarter_more() -> None:
    assert steep_halves({64: 1250, 128: 1000, 192: 700, 384: 500}) == [Violation("half LRAM", 192, 384, 1.4)]
    assert steep_halves({64: None, 128: 1000}) == [Violation("half LRAM", 64, 128, float("inf"))]


def test_sizes_without_a_half_are_not_judged() -> None:
    assert steep_halves({192: 9000, 512: 1000}) == []


def test_a_row_names_what_does_not_fit_and_what_is_wrong() -> None:
    result = {"network": "n", "lram": {"512": 1000, "64": None}, "slices": {"1": 2000}, "violations": ["LRAM 1 / 2"]}
    assert row(result) == ["n", "1,000", "does not fit", "2,000", "LRAM 1 / 2"]
