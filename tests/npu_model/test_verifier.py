"""Every rule of the verifier: a program that keeps it passes, the nearest one that breaks it is refused."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from msgspec import structs

from tests.npu_model import infra, nests
from tests.npu_model.infra import SLICE_WAITS, WAIT_IN, WAIT_OUT, Assembler, load, store
from tests.npu_model.violations import physical, rules
from torq_byoc.errors import VerificationError
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import (
    ActConfig,
    AluConfig,
    Loop,
    Op0,
    Op1,
    Role,
    Tag,
)
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import verify

CONFIG = nests.CONFIG
CONV = infra.conv3x3(CONFIG, 2000, 9000, 20000, 30000, (16, 14, 14, 16))


@pytest.mark.parametrize("name", infra.programs())
def test_real_programs_pass(name):
    verify(infra.programs()[name])


def test_the_originals_compute_what_they_should():
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (5, 77)).astype(np.int8)
    y = Simulator(infra.double_buffered_relu(tiles=5, count=77)).run({"x": x})["y"]
    zero_points = np.array([[1], [2], [1], [2], [1]])
    np.testing.assert_array_equal(y, np.clip(x.astype(int) + zero_points, 0, 127))
    x = rng.integers(-128, 128, (6, 40)).astype(np.int8)
    y = Simulator(infra.spilled_chain()).run({"x": x})["y"]
    spilled = np.clip(x.astype(int) + 3, 0, 127).reshape(-1)
    halves = np.concatenate([spilled[:120].reshape(6, 20), spilled[120:].reshape(6, 20)], axis=1).reshape(-1)
    summed = (halves[:120] + halves[120:] + 1) >> 1
    expected = np.concatenate([np.clip(summed + 3, 0, 127).reshape(6, 20), np.full((6, 20), 9)], axis=1)
    np.testing.assert_array_equal(y, expected)


def test_the_error_says_what_where_why():
    program = infra.double_buffered_relu()
    broken = dataclasses.replace(program, jobs=program.jobs[:-1])
    with pytest.raises(VerificationError, match="13 job descriptions") as caught:
        verify(broken)
    assert caught.value.details["violations"] == 2  # the list is not the sealed one either
    assert caught.value.where == "whole program"


class Small:
    """One relu of 64 bytes, whose parts a test replaces."""

    def __init__(self, **parts) -> None:
        self.asm = asm = Assembler()
        self.x, self.y, self.arena = asm.input("x", 64), asm.output("y", 64), asm.arena(256)
        self.constants = asm.weights(bytes(range(64)))
        self.code = asm.program(*parts.get("tasks", [infra.relu(asm.config, 0x1000, 0x2000, 64)]))
        self.fetch = asm.fetch(self.code, 0x3000)
        self.load = load(0x1000, self.x, 64)
        self.run = asm.run(0, self.code, 0x3000)
        self.store = store(0x2000, self.y, 64)

    def program(self, *tasks):
        for task in tasks:
            self.asm.task(*task)
        return self.asm.finish()

    def whole(self, *extra):
        plain = [(self.fetch, WAIT_IN), (self.load, WAIT_IN), (self.run, SLICE_WAITS[0]), (self.store, WAIT_OUT)]
        return self.program(*extra, *plain)


def test_small_passes():
    s = Small()
    assert physical(s.whole()) == []


@pytest.mark.parametrize(
    "transfer, rule",
    [
        (lambda s: load(0x1000, s.x, 65), "bounds"),
        (lambda s: load(0x1000, s.x - 1, 64), "bounds"),
        (lambda s: load(0x1000, s.x + 63, 1, (64, -1)), None),
        (lambda s: load(0x1000, s.x + 62, 1, (64, -1)), "bounds"),
        (lambda s: load(0x1000, s.x, 1, (2, 63)), None),
        (lambda s: load(0x1000, s.x, 1, (2, 64)), "bounds"),
        (lambda s: load(0x1000, 0x20, 4), "bounds"),
        (lambda s: load(1279, s.x, 64), "bounds"),
        (lambda s: load(1280, s.x, 64), None),
        (lambda s: load(512 * 1024 - 64, s.x, 64), None),
        (lambda s: load(512 * 1024 - 63, s.x, 64), "bounds"),
        (lambda s: load(0x1000, s.x, 0), "limit"),
        (lambda s: load(0x1000, s.x, 1, (1, 0), (1, 0), (1, 0), (64, 0)), "limit"),
        (lambda s: load(0x1000, s.x, 1, (0, 1)), "limit"),
        (lambda s: load(0x1000, s.x, 1, (1, 1 << 23)), "limit"),
        (lambda s: load(0x1000, s.arena, 64), None),
        (lambda s: load(0x1000, s.y, 64), None),
        (lambda s: load(640, s.asm.config.xram_base, 64), "bounds"),
    ],
)
def test_loads_stay_in_their_places(transfer, rule):
    s = Small()
    assert rules(s.whole((transfer(s), WAIT_IN))) == ({rule} if rule else set())


@pytest.mark.parametrize(
    "transfer, rule",
    [
        (lambda s: store(0x1000, s.y, 64), None),
        (lambda s: store(0x1000, s.y, 65), "bounds"),
        (lambda s: store(0x1000, s.x, 64), "bounds"),
        (lambda s: store(0x1000, s.constants, 64), "bounds"),
        (lambda s: store(0x1000, s.code, 1), "bounds"),
        (lambda s: store(0x1000, s.arena + 192, 64), None),
        (lambda s: store(0x1000, s.arena + 193, 64), "bounds"),
        (lambda s: store(0x500 - 1, s.arena, 64), "bounds"),
        (lambda s: store(0x1000, s.arena, 16, (4, 16)), None),
        (lambda s: store(0x1000, s.arena, 16, (4, 15)), "order"),
        (lambda s: store(0x1000, s.arena, 16, (4, 0)), "order"),
    ],
)
def test_stores_stay_in_their_places(transfer, rule):
    s = Small()
    assert rules(s.whole((transfer(s), WAIT_OUT))) == ({rule} if rule else set())


def test_inputs_of_a_slice_must_be_written():
    s = Small()
    assert rules(s.program((s.fetch, WAIT_IN), (s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT))) == {"undefined"}
    s = Small()
    short = load(0x1000, s.x, 63)
    program = s.program((s.fetch, WAIT_IN), (short, WAIT_IN), (s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT))
    assert "byte 0x103f" in physical(program)[0].message


def test_undefined_bytes_may_travel_but_not_be_used():
    s = Small()
    detour = [(store(0x7000, s.arena, 64), WAIT_OUT), (load(0x1000, s.arena, 64), WAIT_IN)]
    tail = [(s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT)]
    assert rules(s.program((s.fetch, WAIT_IN), *detour, *tail)) == {"undefined"}
    s = Small()
    detour = [(store(0x7000, s.arena, 64), WAIT_OUT), (load(0x7000, s.arena, 64), WAIT_IN)]
    assert physical(s.whole(*detour)) == []


def test_every_output_byte_must_be_written():
    s = Small()
    program = s.program(
        (s.fetch, WAIT_IN), (s.load, WAIT_IN), (s.run, SLICE_WAITS[0]), (store(0x2000, s.y, 63), WAIT_OUT)
    )
    assert physical(program)[0].message == "1 bytes of output 'y' are never written"
    s = Small()
    program = s.program((store(0x2000, s.y, 64), WAIT_OUT))
    assert rules(program) == {"output"}


@pytest.mark.parametrize(
    "tasks, rule",
    [
        (lambda s: [(s.fetch, WAIT_IN), (s.load,), (s.run, SLICE_WAITS[0], WAIT_IN), (s.store, WAIT_OUT)], "order"),
        (lambda s: [(s.fetch, WAIT_IN), (s.load, s.run, SLICE_WAITS[0], WAIT_IN), (s.store, WAIT_OUT)], "order"),
        (lambda s: [(s.fetch,), (s.load, WAIT_IN), (s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT)], "engine"),
        (lambda s: [(s.fetch, WAIT_IN), (s.load, WAIT_IN), (s.run,), (s.store, WAIT_OUT), SLICE_WAITS[:1]], "order"),
        (lambda s: [(s.fetch, WAIT_IN), (s.load, WAIT_IN), (s.run, SLICE_WAITS[1]), (s.store, WAIT_OUT)], "order"),
        (lambda s: [(s.fetch, WAIT_IN), (s.load, WAIT_IN), (s.run, SLICE_WAITS[0]), (s.store,)], "engine"),
        (lambda s: [(s.load, WAIT_IN), (s.fetch,), (s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT, WAIT_IN)], "order"),
    ],
)
def test_jobs_in_flight_must_not_meet(tasks, rule):
    s = Small()
    found = physical(s.program(*tasks(s)))
    assert found
    assert found[0].rule == rule


def test_write_after_read_needs_a_wait():
    s = Small()
    early = load(0x1000, s.x, 64)
    program = s.program(
        (s.fetch, WAIT_IN), (s.load, WAIT_IN), (s.run, early, WAIT_IN, SLICE_WAITS[0]), (s.store, WAIT_OUT)
    )
    assert rules(program) == {"order"}
    s = Small()
    program = s.program(
        (s.fetch, WAIT_IN),
        (s.load, WAIT_IN),
        (s.run, load(0x1040, s.x, 64), WAIT_IN, SLICE_WAITS[0]),
        (s.store, load(0x1000, s.x, 64), WAIT_OUT, WAIT_IN),
    )
    assert physical(program) == []


def test_xram_needs_waits_too():
    s = Small()
    both = (store(0x1000, s.arena, 64), load(0x4000, s.arena + 63, 64), WAIT_IN, WAIT_OUT)
    assert rules(s.whole(both)) == {"order"}
    s = Small()
    both = (store(0x1000, s.arena, 64), load(0x4000, s.arena + 64, 64), WAIT_IN, WAIT_OUT)
    assert physical(s.whole(both)) == []


def test_slice_programs_must_arrive_whole_and_stay():
    s = Small()
    assert rules(s.program((s.load, WAIT_IN), (s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT))) == {"program"}
    s = Small()
    half = load(0x3000, s.code, s.asm.size(s.code) // 2)
    assert rules(s.program((half, WAIT_IN), (s.load, WAIT_IN), (s.run, SLICE_WAITS[0]))) == {"program"}
    s = Small()
    over = load(0x3000, s.x, 1)
    program = s.program((s.fetch, WAIT_IN), (over, WAIT_IN), (s.load, WAIT_IN), (s.run, SLICE_WAITS[0]))
    assert "program" in rules(program)
    s = Small()
    over = load(0x3000, s.x, 1)
    program = s.program(
        (s.fetch, WAIT_IN), (s.load, WAIT_IN), (s.run, over, SLICE_WAITS[0], WAIT_IN), (s.store, WAIT_OUT)
    )
    assert rules(program) == {"order"}


def test_weights_that_look_like_a_program_do_not_run():
    s = Small()
    code = infra.encode_slice_program([infra.relu(CONFIG, 0x1000, 0x2000, 64)])
    address = s.asm.weights(code)
    program = s.program(
        (load(0x3000, address, len(code)), WAIT_IN), (s.load, WAIT_IN), (s.run, SLICE_WAITS[0]), (s.store, WAIT_OUT)
    )
    assert rules(program) == {"program"}


def test_a_slice_must_not_overwrite_its_own_program_or_use_it_as_data():
    s = Small(tasks=[infra.relu(CONFIG, 0x1000, 0x3000 - 63, 64)])
    assert "program" in rules(s.whole())
    s = Small(tasks=[infra.relu(CONFIG, 0x3000, 0x2000, 64)])
    assert rules(s.whole()) == {"undefined"}


def test_in_place_only_element_for_element():
    for target, fine in ((0x1000, True), (0x1001, False), (0xFFF, False), (0x1040, True)):
        s = Small(tasks=[infra.relu(CONFIG, 0x1000, target, 64)])
        s.store = store(target, s.y, 64)
        assert (physical(s.whole()) == []) == fine, target


@pytest.mark.parametrize(("apart", "taps", "tap", "fine"), [(64, 1, 0, True), (64, 3, 0, True), (64, 3, 1, False)])
def test_a_fold_in_place_may_read_an_element_several_times(apart, taps, tap, fine):
    """Weighted sums take more than one weight an element: what they read stays the element that they replace."""
    nest = LoopNest(
        loops=(LoopSpec("n", 32, Role.LANE), LoopSpec("r", 2, Role.REDUCE), LoopSpec("t", taps, Role.REDUCE)),
        data=Operand(0x1000, DType.INT8, {"n": 1, "r": apart, "t": tap}),
        result=Operand(0x1000, DType.INT8, {"n": 1}),
        alu=AluConfig(Op0.DBYP, Op1.ACC),
        act=ActConfig(shift=2, clip_min=-128, clip_max=127),
    )
    s = Small(tasks=[build(nest, CONFIG)])
    s.x = s.asm.input("both", 192)
    s.load, s.store = load(0x1000, s.x, 192), store(0x1000, s.y, 64)
    assert rules(s.whole()) == (set() if fine else {"order"})


def test_a_task_must_not_write_a_byte_twice():
    task = infra.relu(CONFIG, 0x1000, 0x2000, 64)
    wide = structs.replace(task, loops=(Loop(Tag.OTHER, 2, Role.PARALLEL), *task.loops))
    moved = tuple(
        structs.replace(ndl, dims=tuple(structs.replace(dim, loop=1) for dim in ndl.dims)) for ndl in task.ndls
    )
    s = Small(tasks=[structs.replace(wide, ndls=moved)])
    assert {"order", "limit"} & rules(s.whole())


def test_a_slice_that_does_not_exist():
    s = Small()
    run = structs.replace(s.run, slice_index=2)
    assert "engine" in rules(s.program((s.fetch, WAIT_IN), (s.load, WAIT_IN), (run, SLICE_WAITS[0])))


def test_the_memory_map_must_be_disjoint_aligned_and_inside():
    program = infra.spilled_chain()
    x, y = program.inputs[0], program.outputs[0]
    moved = dataclasses.replace(y, address=x.address)
    assert "bounds" in rules(dataclasses.replace(program, outputs=(moved,)))
    assert "bounds" in rules(dataclasses.replace(program, outputs=(dataclasses.replace(y, address=y.address + 4),)))
    assert "bounds" in rules(dataclasses.replace(program, arena_address=program.arena_address + 2))
    assert "bounds" in rules(dataclasses.replace(program, arena_address=0x1000))
    assert "bounds" in rules(dataclasses.replace(program, arena_bytes=1 << 32))


def test_a_program_of_six_thousand_jobs_is_checked_in_seconds():
    program = infra.double_buffered_relu(tiles=2000, count=2000)
    started = time.perf_counter()
    assert physical(program) == []
    assert time.perf_counter() - started < 4
