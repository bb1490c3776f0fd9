"""What the verifier knows of LRAM, byte by byte: any set that was defined, any set that is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.npu_model import infra
from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.touched import Placed
from torq_byoc.npu_model.verifier_memory import DATA, UNDEFINED, Memory
from torq_byoc.npu_model.xram import XramMap

BASE = 40_000
"""Behind the slots of the sequencer."""


def random_set(rng: np.random.Generator, most: int) -> Placed:
    """Up to so many intervals; equally long and far apart in half of the cases."""
    count = int(rng.integers(1, most + 1))
    if rng.integers(2):
        starts, sizes = np.arange(count) * 7 + rng.integers(0, 50), np.full(count, rng.integers(1, 7))
    else:
        starts, sizes = rng.integers(0, 8 * most, count), rng.integers(1, 9, count)
    return Placed.of(intervals.merge(starts, starts + sizes)).moved(BASE)


def members(placed: Placed) -> list[int]:
    return [byte for start, end in placed.exact.tolist() for byte in range(start, end)]


@pytest.mark.parametrize("most", [1, 3, 50, 300])
@pytest.mark.parametrize("seed", range(25))
def test_the_first_byte_that_is_not_of_a_kind(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    program = infra.double_buffered_relu()
    memory, known = Memory(program, XramMap(program)), np.full(program.config.lram_bytes, UNDEFINED)
    for _ in range(3):
        defined = random_set(rng, most)
        memory.define(defined)
        known[members(defined)] = DATA
    forgotten = BASE + int(rng.integers(0, 4 * most))
    memory.forget(forgotten, forgotten + 3, lram=True)
    known[forgotten : forgotten + 3] = UNDEFINED
    for _ in range(20):
        wanted = random_set(rng, most)
        wrong = [byte for byte in members(wanted) if known[byte] != DATA]
        assert memory.first_not(wanted, DATA) == (wrong[0] if wrong else None)
    assert memory.first_not(defined, UNDEFINED) == next((b for b in members(defined) if known[b] == DATA), None)
