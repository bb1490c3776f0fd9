"""The onnx package's own cases: right, or refused by name when compiling, never at run time."""

from __future__ import annotations

import pytest

from tests.end_to_end.node_cases import GENERATORS, cases_of, fault


@pytest.mark.parametrize("generator", GENERATORS)
def test_one_case_of_each_operator_is_right_or_refused_by_name(generator):
    case = next(case for case in cases_of(generator) if not case.name.endswith("_expanded"))
    assert fault(case.frozen()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("generator", GENERATORS)
def test_every_case_is_right_or_refused_by_name(generator):
    faults = {}
    for case in cases_of(generator):
        faults[case.name] = fault(case)
        if len(case.feeds) > 1:
            faults[f"{case.name}, frozen"] = fault(case.frozen())
    assert {name: text for name, text in faults.items() if text} == {}
