"""Decisions that fill the LRAM to the brim must be worth it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.codegen.infra import chain
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.crowding import least_crowded
from torq_byoc.schedules.plan import Scheduler

USABLE = 1000


@dataclass(frozen=True)
class _Priced:
    demand: int
    cycles: float

    @property
    def rank(self) -> tuple[float, float]:
        return (self.cycles, 0.0)

    def crowded(self, share: float) -> _Priced:
        return replace(self, cycles=self.cycles * (1 + share))


def _best(options: list[_Priced], room: int) -> _Priced | None:
    fitting = [option for option in options if option.demand <= room]
    return min(fitting, key=lambda option: option.cycles, default=None)


@pytest.mark.parametrize(("saved", "demand"), [(0.04, 500), (0.10, 990)])
def test_filling_the_lram_must_save_a_twentieth(saved: float, demand: int) -> None:
    options = [_Priced(500, 100.0), _Priced(990, 100.0 * (1 - saved))]
    found = least_crowded(lambda room: _best(options, room), USABLE, USABLE)
    assert found is not None and found.demand == demand


def test_what_fills_it_keeps_its_higher_price() -> None:
    found = least_crowded(lambda room: _best([_Priced(990, 100.0)], room), USABLE, USABLE)
    assert found == _Priced(990, 105.0)


def test_what_leaves_room_costs_no_more() -> None:
    options = [_Priced(980, 100.0), _Priced(500, 101.0)]
    assert least_crowded(lambda room: _best(options, room), USABLE, USABLE) == options[0]


def test_the_last_bytes_are_used_where_nothing_else_fits() -> None:
    options = [_Priced(10, 100.0)]
    found = least_crowded(lambda room: _best(options, room), 10, USABLE)
    assert found is not None and found.demand == 10
    assert least_crowded(lambda room: _best(options, room), 9, USABLE) is None


@pytest.mark.parametrize("kib", [24, 32, 64])
@pytest.mark.parametrize(("layers", "channels", "extent"), [(4, 8, 40), (3, 16, 40), (5, 16, 56)])
def test_the_plan_for_so_much_memory_is_the_same_wherever_there_is_twice_as_much(
    layers: int, channels: int, extent: int, kib: int
) -> None:
    """Crowded is what fills the part that a plan makes do with: a machine with more tries what one with less would."""
    graph, settled = chain(layers, channels, extent), set()
    for whole in (256, 384, 512):
        config = replace(NpuConfig(), lram_bytes=whole << 10)
        share = ((kib << 10) - config.lram_reserve) / config.lram_usable
        settled.add(Scheduler(graph, config, budget=share).best_chain(turns=4).settled)
    assert len(settled) == 1
