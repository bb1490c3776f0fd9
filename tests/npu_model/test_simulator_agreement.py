"""The vectorised simulator and its scalar twin write the same bytes, whatever the task."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.npu_model.random_tasks import Case, cases
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.isa import Op1
from torq_byoc.npu_model.scalar import execute_task_scalar

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=1500)


def _agree(case: Case) -> None:
    vectorised, scalar = case.memory.copy(), case.memory.copy()
    execute_task(case.task, vectorised)
    execute_task_scalar(case.task, scalar)
    different = np.flatnonzero(vectorised != scalar)
    assert different.size == 0, f"{different.size} bytes from {different[:4]} differ"


@pytest.mark.parametrize("op1", list(Op1), ids=lambda op: op.name)
def test_every_operation_gives_the_same_bytes(op1: Op1) -> None:
    @QUICK
    @given(cases(op1))
    def check(case: Case) -> None:
        _agree(case)

    check()


@pytest.mark.slow
@LONG
@given(st.data())
def test_many_random_tasks_give_the_same_bytes(data: st.DataObject) -> None:
    _agree(data.draw(cases()))
