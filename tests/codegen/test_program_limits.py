"""What a slice cannot do is refused where programs are cut, whoever proposed it."""

import pytest
from codegen.infra import residual_graph
from msgspec.structs import replace

from torq_byoc.codegen import programs
from torq_byoc.codegen.generate import generate
from torq_byoc.errors import KernelError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.plan import schedule


def test_a_task_beyond_the_limits_stops_code_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    config, graph = NpuConfig(), residual_graph(3)
    plan = schedule(graph, config)
    tasks_of = programs.tasks_of

    def too_wide(*arguments):
        *others, last = tasks_of(*arguments)
        return [*others, replace(last, vector=2 * config.accumulators)]

    monkeypatch.setattr(programs, "tasks_of", too_wide)
    with pytest.raises(KernelError, match="lanes") as caught:
        generate(graph, plan, config)
    assert "lane[" in caught.value.where
