"""What slice jobs touch: a verifier that has seen a task elsewhere finds no less than one that sees it first."""

from __future__ import annotations

import numpy as np
import pytest

from tests.npu_model import infra, nests
from torq_byoc.npu_model.encoding import encode_slice_program
from torq_byoc.npu_model.footprint import task_footprint, without_bases
from torq_byoc.npu_model.isa import SliceTask, StartSlice
from torq_byoc.npu_model.touched import Placed
from torq_byoc.npu_model.verifier_jobs import JobAccess, SliceJobs, TaskAccess

CONFIG = nests.CONFIG
PROGRAM = 4096


def conv(data: int, result: int) -> SliceTask:
    """A convolution of 40 bytes with weights and pairs at fixed places, 80 bytes of results."""
    return infra.conv3x3(CONFIG, data, 2300, 2400, result, (2, 5, 4, 4))


def access(jobs: SliceJobs, task: SliceTask) -> JobAccess:
    code = encode_slice_program([task])
    return jobs.access(StartSlice(0, PROGRAM, len(code)), (task,), code)


@pytest.mark.parametrize(
    ("data", "result", "rules"),
    [
        (2100, 2500, []),
        (2200, 2600, []),
        (CONFIG.lram_bytes - 39, 2500, ["bounds"]),
        (2100, PROGRAM + 1, ["program"]),
        (2100, 2130, ["order"]),
        (1 << CONFIG.limits.address_bits, 2500, ["limit"]),
    ],
    ids=["first", "moved", "outside", "own-program", "own-operand", "no-address"],
)
def test_a_task_seen_elsewhere_is_judged_where_it_is(data: int, result: int, rules: list[str]) -> None:
    jobs = SliceJobs(CONFIG)
    assert not access(jobs, conv(2000, 3000)).problems
    again, fresh = access(jobs, conv(data, result)), access(SliceJobs(CONFIG), conv(data, result))
    assert [rule for rule, _ in again.problems] == rules
    assert again.problems == fresh.problems
    for name in ("lram_reads", "lram_writes"):
        assert getattr(again, name).exact.tolist() == getattr(fresh, name).exact.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_a_task_moved_touches_what_it_does_where_it_is(seed: int) -> None:
    task = nests.random_task(np.random.default_rng(seed))
    reads, writes = nests.touched(task)
    moved = TaskAccess.of(task_footprint(without_bases(task))).moved(task)
    assert {agent: members(read) for agent, read in moved.reads} == {a: read for a, read in reads.items() if read}
    assert (members(moved.writes) if moved.writes else set()) == set(writes)
    assert moved.repeats == (len(set(writes)) < len(writes))


def members(placed: Placed) -> set[int]:
    found = {byte for start, end in placed.exact.tolist() for byte in range(start, end)}
    assert (placed.low, placed.high) == (min(found), max(found) + 1)
    return found


def test_bytes_follow_the_bases() -> None:
    jobs = SliceJobs(CONFIG)
    access(jobs, conv(2000, 3000))
    moved = access(jobs, conv(2100, 2500))
    size = len(encode_slice_program([conv(2100, 2500)]))
    assert moved.lram_reads.exact.tolist() == [[2100, 2140], [2300, 2372], [2400, 2432], [PROGRAM, PROGRAM + size]]
    assert moved.lram_writes.exact.tolist() == [[2500, 2580]]
