"""What every op waits for, against a search through all pairs of ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from codegen.infra import convolution, residual_graph

from torq_byoc.codegen import lower
from torq_byoc.codegen.dependencies import AddressMap, Dependencies, dependencies, engine_of, with_reused_xram
from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.hl import Effect, RunProgram
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
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


def chain() -> OpGraph:
    """Convolutions whose tensors go through XRAM where LRAM is small, one in the place of another."""
    rng, builder = np.random.default_rng(1), GraphBuilder("chain")
    x = builder.input("x", (1, 16, 26, 26), DType.INT8)
    for number in range(5):
        x = convolution(builder, rng, x, 16, 3, 1, 1, f"conv{number}")
    builder.output(x)
    return builder.finish()


@pytest.mark.parametrize(
    ("make", "config", "shares_xram"),
    [(lambda: residual_graph(3), NpuConfig(), False), (lambda: residual_graph(3), SMALL, False), (chain, SMALL, True)],
    ids=["roomy", "crowded", "through XRAM"],
)
def test_waits_are_those_of_a_search_through_all_pairs(
    make: Callable[[], OpGraph], config: NpuConfig, shares_xram: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[RunProgram, AddressMap, Dependencies]] = []
    more: list[int] = []

    def watched(before: Dependencies, program: RunProgram, addresses: AddressMap) -> Dependencies:
        found = with_reused_xram(before, program, addresses)
        seen.append((program, addresses, found))
        more.append(sum(own != other for own, other in zip(found.needed, before.needed, strict=True)))
        return found

    monkeypatch.setattr(lower, "with_reused_xram", watched)
    graph = make()
    generate(graph, schedule(graph, config, effort=0, budget=0.8), config)
    assert seen
    assert any(more) == shares_xram
    for program, addresses, found in seen:
        assert found.engines == [engine_of(op) for op in program.ops]
        assert len(set(found.engines)) == 4
        assert found.needed == dependencies(program, addresses).needed == all_pairs(program, addresses)
