"""What every op waits for, against a search through all pairs of ops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from codegen.infra import residual_graph

from torq_byoc.codegen import lower
from torq_byoc.codegen.dependencies import AddressMap, dependencies, engine_of
from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.hl import Effect, RunProgram
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import WaitFor
from torq_byoc.schedules.plan import schedule

SMALL = replace(NpuConfig(), name="lram24", lram_bytes=24 * 1024)


def all_pairs(program: RunProgram, addresses: AddressMap) -> list[dict[WaitFor, int]]:
    """The latest op of every other engine that conflicts, or that touched an earlier tenant of what is written."""
    ops = program.ops
    first_write: dict[int, int] = {}
    for position, op in enumerate(ops):
        for access in op.accesses:
            if access.effect is Effect.WRITE:
                first_write.setdefault(access.buffer, position)

    def shares(a: int, b: int) -> bool:
        low, high = addresses.address, addresses.size
        return a != b and program.buffers[a].space is program.buffers[b].space and (
            low[a] < low[b] + high[b] and low[b] < low[a] + high[a]
        )  # fmt: skip

    found = []
    for position, op in enumerate(ops):
        needed: dict[WaitFor, int] = {}
        for earlier in range(position):
            engine = engine_of(ops[earlier])
            if engine == engine_of(op):
                continue
            for before in ops[earlier].accesses:
                for access in op.accesses:
                    conflict = before.buffer == access.buffer and access.conflicts_with(before)
                    writes = access.effect is Effect.WRITE and earlier < first_write[access.buffer]
                    if conflict or (writes and shares(before.buffer, access.buffer)):
                        needed[engine] = earlier
        found.append(needed)
    return found


@pytest.mark.parametrize("config", [NpuConfig(), SMALL], ids=["roomy", "crowded"])
def test_waits_are_those_of_a_search_through_all_pairs(config: NpuConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[RunProgram, AddressMap]] = []

    def watched(program: RunProgram, addresses: AddressMap) -> Any:
        seen.append((program, addresses))
        return dependencies(program, addresses)

    monkeypatch.setattr(lower, "dependencies", watched)
    graph = residual_graph(3)
    generate(graph, schedule(graph, config, budget=0.8), config)
    assert seen
    for program, addresses in seen:
        assert len({engine_of(op) for op in program.ops}) == 4
        assert dependencies(program, addresses) == all_pairs(program, addresses)
