"""Partial sums in PRAM: what they compute, in both simulators, and which programs lose or mix them up."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from tests.npu_model.infra import SLICE_WAITS, WAIT_IN, WAIT_OUT, Assembler, load, relu, store
from torq_byoc.errors import KernelError, VerificationError
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.limits import check_task
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import decode_slice_program, encode_slice_program
from torq_byoc.npu_model.execute import Pram, execute_task
from torq_byoc.npu_model.isa import Agent, AluConfig, Op0, Op1, Role, SliceTask
from torq_byoc.npu_model.scalar import execute_task_scalar
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.timing import task_cycles
from torq_byoc.npu_model.verifier import check

CONFIG = NpuConfig()
SOURCE, TARGET, CODE, OTHER = 0x1000, 0x2000, 0x3000, 0x3800


def fold(
    first: int,
    terms: int,
    *,
    op: Op1 = Op1.ACC,
    clear: bool = True,
    output: bool = True,
    lanes: int = 20,
    dtype: DType = DType.INT8,
    target: int = TARGET,
) -> SliceTask:
    """y[lane] (int32) = fold of x[first : first + terms][lane]."""
    nest = LoopNest(
        loops=(LoopSpec("n", lanes, Role.LANE), LoopSpec("r", terms, Role.REDUCE)),
        data=Operand(SOURCE + first * lanes * dtype.size, dtype, {"n": dtype.size, "r": lanes * dtype.size}),
        result=Operand(target, DType.FP32 if dtype.is_float else DType.INT32, {"n": 4}),
        alu=AluConfig(Op0.DBYP, op, clear, output),
    )
    return build(nest, CONFIG)


def chain(*terms: int, **options) -> list[SliceTask]:
    """A fold divided between tasks of so many terms each."""
    starts = [sum(terms[:index]) for index in range(len(terms))]
    parts = zip(starts, terms, strict=True)
    return [fold(start, n, clear=start == 0, output=start + n == sum(terms), **options) for start, n in parts]


class Machine:
    """LRAM with random elements of a type, run by both simulators."""

    def __init__(self, rows: int, lanes: int = 20, dtype: DType = DType.INT8) -> None:
        rng = np.random.default_rng(3)
        values = rng.integers(-128, 128, (rows, lanes)).astype(dtype.numpy)
        self.values, self.lanes = values.astype(np.float64), lanes
        self.lram = np.zeros(1 << 14, np.uint8)
        self.lram[SOURCE : SOURCE + values.nbytes] = values.reshape(-1).view(np.uint8)

    def run(self, tasks: list[SliceTask], kind: type = np.int32) -> np.ndarray:
        fast, slow = self.lram.copy(), self.lram.copy()
        pram, points = Pram(), {}
        for task in tasks:
            execute_task(task, fast, pram)
            execute_task_scalar(task, slow, points)
        assert np.array_equal(fast, slow)
        return fast[TARGET : TARGET + 4 * self.lanes].view(kind)


@pytest.mark.parametrize("terms", [(9,), (4, 5), (1, 1, 7), (3, 3, 3), (1,) * 9])
@pytest.mark.parametrize(("op", "numpy"), [(Op1.ACC, np.sum), (Op1.MAX, np.max), (Op1.MIN, np.min)])
def test_a_divided_fold_is_the_whole_fold(terms, op, numpy) -> None:
    machine = Machine(9)
    np.testing.assert_array_equal(machine.run(chain(*terms, op=op)), numpy(machine.values, axis=0))


def test_float_sums_are_carried_unrounded() -> None:
    machine = Machine(9, dtype=DType.BF16)
    np.testing.assert_array_equal(machine.run(chain(2, 3, 4, dtype=DType.BF16), np.float32), machine.values.sum(axis=0))


def test_chains_may_follow_one_another() -> None:
    machine = Machine(9)
    tasks = [*chain(4, 5, target=TARGET + 0x400), *chain(2, 7, op=Op1.MAX)]
    np.testing.assert_array_equal(machine.run(tasks), machine.values.max(axis=0))


def test_continuing_from_nothing_is_refused_by_the_simulator() -> None:
    with pytest.raises(VerificationError, match="PRAM"):
        execute_task(fold(0, 4, clear=False), np.zeros(1 << 14, np.uint8))


def test_tasks_read_back_from_their_bytes() -> None:
    tasks = tuple(chain(2, 3, 4))
    assert decode_slice_program(encode_slice_program(tasks)) == tasks


def test_a_task_without_output_costs_no_act_cycles() -> None:
    first, last = chain(3, 3, lanes=64)
    assert {Agent.ACPR, Agent.DEQW} & {ndl.agent for ndl in first.ndls} == set()
    assert (task_cycles(first), task_cycles(last)) == (3, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": Op1.SACC, "output": False}, "SACC cannot be continued"),
        ({"op": Op1.AMAX, "clear": False}, "AMAX cannot be continued"),
        ({"lanes": 65, "output": False}, "2 sets of accumulators"),
    ],
)
def test_what_pram_cannot_carry_is_refused(options, words) -> None:
    with pytest.raises(KernelError, match=words):
        check_task(fold(0, 3, **options), CONFIG)


class Chained:
    """A sum of four rows on slice 0, whose tasks a test rearranges."""

    def __init__(self) -> None:
        self.asm = Assembler()
        self.x, self.y = self.asm.input("x", 4, 20), self.asm.output("y", 20, dtype=DType.INT32)
        self.asm.task(load(SOURCE, self.x, 80), WAIT_IN)

    def job(self, *tasks: SliceTask, on: int = 0) -> None:
        code = self.asm.program(*tasks)
        self.asm.task(self.asm.fetch(code, CODE), WAIT_IN)
        self.asm.task(self.asm.run(on, code, CODE), SLICE_WAITS[on])

    def problems(self) -> set[tuple[str, str]]:
        self.asm.task(store(TARGET, self.y, 80), WAIT_OUT)
        return {(v.rule, v.message) for v in check(self.asm.finish(), buffers=False, seals=False)}

    def partial(self) -> set[str]:
        return {message for rule, message in self.problems() if rule == "partial"}


def test_sums_may_be_carried_from_job_to_job() -> None:
    chained = Chained()
    for task in chain(1, 2, 1):
        chained.job(task)
    assert chained.problems() == set()
    x = np.arange(80, dtype=np.int8).reshape(4, 20)
    program = chained.asm.finish()
    for scalar in (False, True):
        np.testing.assert_array_equal(Simulator(program, scalar=scalar).run({"x": x})["y"], x.astype(int).sum(axis=0))


def test_another_slice_may_run_between() -> None:
    chained, (first, last) = Chained(), chain(2, 2)
    chained.job(first)
    chained.job(relu(CONFIG, SOURCE, OTHER + 0x800, 20), on=1)
    chained.job(last)
    assert chained.problems() == set()


def test_a_task_between_discards_the_sums() -> None:
    chained, (first, last) = Chained(), chain(2, 2)
    chained.job(first)
    chained.job(relu(CONFIG, SOURCE, OTHER + 0x800, 20))
    chained.job(last)
    assert chained.partial() == {
        "task 0: it discards partial sums that the task before left in PRAM",
        "task 0: it continues from partial sums that no task left in PRAM",
    }


def test_sums_do_not_move_between_slices() -> None:
    chained, (first, last) = Chained(), chain(2, 2)
    chained.job(first)
    chained.job(last, on=1)
    assert chained.partial() == {
        "task 0: it continues from partial sums that no task left in PRAM",
        "slice 0: partial sums are left in PRAM at the end",
    }


@pytest.mark.parametrize("change", [{"lanes": 16}, {"op": Op1.MAX}, {"dtype": DType.UINT8}])
def test_sums_of_other_accumulators_are_not_continued(change) -> None:
    chained = Chained()
    chained.job(fold(0, 2, output=False), fold(2, 2, clear=False, **change))
    assert "task 1: it continues from partial sums of other accumulators than its own" in chained.partial()


def test_a_dropped_first_task_is_noticed() -> None:
    chained = Chained()
    chained.job(*chain(1, 2, 1)[1:])
    assert chained.partial() == {"task 0: it continues from partial sums that no task left in PRAM"}


def test_descriptors_of_act_have_no_use_without_output() -> None:
    whole = fold(0, 4)
    broken = structs.replace(whole, alu=structs.replace(whole.alu, output=False))
    chained = Chained()
    chained.job(broken)
    assert any("descriptors missing or without use: ACPR, DEQW" in message for _, message in chained.problems())
