"""The verifier against an adversarial machine: what it accepts has one result, and it is the one that was meant.

Mutants of small real programs run on ``adversary.Machine`` under many timings and memory contents.

* By what a program does alone: a mutant with more than one result, or with an access that is not its own,
  must be refused.  A mutant with one result that differs from the original's is a valid program for another
  function (a tile stored at its neighbour's place, say), which only intent can tell.
* With the compiler's declarations beside it: every mutant whose result differs must be refused.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from tests.npu_model import infra, mutants
from tests.npu_model.adversary import outcomes
from torq_byoc.errors import InternalError
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import check


def inputs_of(program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {b.name: rng.integers(-128, 128, b.shape).astype(np.int8) for b in program.inputs}


def mutant(name: str, mutate: mutants.Mutator, seed: int):
    """The mutated program with nothing declared, or None when nothing changes or it cannot be encoded."""
    assembler = infra.assemblies()[name]
    original = assembler.finish()
    if not mutate(assembler, np.random.default_rng(seed)):
        return None
    try:
        program = assembler.finish()
    except InternalError:
        return None
    if mutate is mutants.drop_start:  # the job table still lists the job
        program = dataclasses.replace(program, jobs=original.jobs)
    return program


def judge(name: str, seeds: range) -> Counter:
    """Try every mutator with every seed; returns how many mutants did what."""
    original = infra.programs()[name]
    inputs = inputs_of(original)
    expected = outcomes(original, inputs)
    counts: Counter = Counter()
    for mutate in mutants.MUTATORS:
        for seed in seeds:
            program = mutant(name, mutate, seed)
            if program is None:
                continue
            meant = dataclasses.replace(program, buffers=original.buffers, jobs=original.jobs, seal=original.seal)
            refused = bool(check(program, buffers=False, seals=False))
            results = outcomes(program, inputs)
            defined = len(results) == 1 and not isinstance(next(iter(results)), str)
            assert refused or defined, f"{mutate.__name__} with seed {seed} was accepted"
            changed = results != expected
            assert check(meant) or not changed, f"{mutate.__name__} with seed {seed} computes something else"
            counts["mutants"] += 1
            counts["changed"] += changed
            counts["refused for what it does"] += changed and refused
            counts["refused for its buffers"] += changed and bool(check(meant, seals=False))
            counts["same and accepted"] += not changed and not check(meant)
            if mutate is mutants.drop_start:
                assert refused
    return counts


@pytest.mark.parametrize("name", infra.assemblies())
def test_originals_are_accepted_and_have_one_result(name):
    program = infra.programs()[name]
    inputs = inputs_of(program)
    assert check(program) == []
    (result,) = outcomes(program, inputs, seeds=8)
    simulated = Simulator(program).run(inputs)
    assert dict(result) == {key: value.tobytes() for key, value in simulated.items()}


def test_every_mutant_that_computes_something_else_is_refused():
    total: Counter = Counter()
    for number, name in enumerate(infra.assemblies()):
        total += judge(name, range(100 * number, 100 * number + 8))
    assert total["mutants"] >= 500
    assert total["changed"] >= 300
    assert total["refused for what it does"] >= 0.9 * total["changed"]
    assert total["refused for its buffers"] > total["refused for what it does"]
    assert total["same and accepted"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", infra.assemblies())
def test_many_mutants_that_compute_something_else_are_refused(name):
    counts = judge(name, range(1000, 1040))
    assert counts["refused for what it does"] >= 0.8 * counts["changed"]
