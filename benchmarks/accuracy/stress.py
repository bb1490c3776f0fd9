"""Six models that are hard to quantize, by us and by onnxruntime's static quantization.

Usage::

    python -m benchmarks.accuracy.stress [M1 ...] [--seeds N] [--json FILE]

Every model is compiled with calibration data alone, as int8 or in mixed precision with what its outputs have to reach,
its program simulated and held to the integer reference bit by bit, and its outputs compared with those of the float
model on fresh data: SQNR in dB, and cosine, of the worst part of the outputs.  onnxruntime's models are evaluated in
float64, so that its integer kernels play no part.  A set counts as reached when all of its draws reach the goal;
nothing is tuned to one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy.onnxruntime_int8 import best_score
from benchmarks.accuracy.sets import SETS, StressSet
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.compilation.options import Options
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.judge import Judge, Score
from torq_byoc.quantize.planning.target import PrecisionTarget

CALIBRATION_SAMPLES, EVALUATION_SAMPLES = 16, 8
DRAWS = 3
COLUMNS = (
    "set",
    "trouble",
    "draw",
    "precision",
    "min/max",
    "onnxruntime",
    "its calibrator",
    "here",
    "cosine",
    "0 LSB",
    "goal",
    "reached",
    "by",
)


MARGIN = 1.0
"""Decibels that a planner is asked for beyond a goal: it sees the calibration data alone."""


@dataclass(frozen=True)
class Goal:
    """What a set must reach in a precision, without being told anything else.

    Attributes:
        text: as the table shows it.
        reached: whether outputs are good enough, given their score and that of the plain min/max quantization.
        target: the SQNR in dB that is asked for, given that of the plain min/max quantization, both on the calibration
            data; for mixed precision only.
        most_int16: tensors that may have 16 bits.
    """

    text: str
    reached: Callable[[Score, Score], bool]
    target: Callable[[float], float] | None = None
    most_int16: int = 0

    @property
    def precision(self) -> str:
        """As ``torq_byoc.compile`` takes it."""
        return "int8" if self.target is None else "mixed"


def _decibels(least: float) -> Goal:
    return Goal(f">= {least:g} dB", lambda score, _: score.sqnr >= least)


def _planned_decibels(least: float, most_int16: int) -> Goal:
    return Goal(
        f">= {least:g} dB, <= {most_int16} int16 tensors",
        lambda score, _: score.sqnr >= least,
        lambda _: least + MARGIN,
        most_int16,
    )


def _gained(least: float) -> Goal:
    return Goal(f">= min/max + {least:g} dB", lambda score, plain: score.sqnr >= plain.sqnr + least)


def _planned_gain(least: float) -> Goal:
    return Goal(
        f">= min/max + {least:g} dB, 1 int16 tensor",
        lambda score, plain: score.sqnr >= plain.sqnr + least,
        lambda plain: plain + least + MARGIN,
        1,
    )


GOALS: Mapping[str, tuple[Goal, ...]] = {
    "M1": (Goal("class cosine >= 0.999", lambda score, _: score.cosine >= 0.999),),
    "M2": (_decibels(42),),
    "M3": (_decibels(51),),
    "M4": (_decibels(34),),
    "M5": (_planned_decibels(40, most_int16=3),),
    "M6": (_gained(2), _planned_gain(8)),
}


@dataclass(frozen=True)
class Row:
    """One draw of one set with one of its goals; SQNR in dB and cosines are those of the worst part of the outputs.

    Attributes:
        plain: of the quantization with the ranges of all values seen, and no more.
        onnxruntime, calibrator: of onnxruntime's best, and which that is.
        here, cosine: of the simulated program.
        identical: whether it computes the bits of the integer reference.
        precision, goal, reached: see ``Goal``.
        rewrites: names of those that were applied.
        int16: names of the tensors that have 16 bits.
    """

    name: str
    trouble: str
    draw: int
    precision: str
    plain: float
    onnxruntime: float
    calibrator: str
    here: float
    cosine: float
    identical: bool
    goal: str
    reached: bool
    rewrites: tuple[str, ...]
    int16: tuple[str, ...]


def measure(stress: StressSet, draw: int, goal: Goal) -> Row:
    """Compile, simulate and compare one draw."""
    model = prepare(stress.model)
    calibration = stress.data(CALIBRATION_SAMPLES, 1000 + draw)
    judge = Judge(model, samples(model, stress.data(EVALUATION_SAMPLES, 2000 + draw)))
    plainly = quantize_model(model, calibration, method="minmax", correct_biases=False)
    plain = judge.of(plainly)
    calibrator, theirs = best_score(stress.model, tuple(samples(model, calibration)), judge)
    target = None
    if goal.target:
        target = PrecisionTarget(sqnr=goal.target(Judge(model, samples(model, calibration)).of(plainly).sqnr))
    options = Options(precision=goal.precision, calibration=calibration, target=target)
    stages = stages_of(stress.model, options, name=stress.name)
    outputs = [stages.compiled.run(feed) for feed in judge.feeds]
    score = judge.score(outputs)
    rewrites, int16 = _means(stages.compiled)
    return Row(
        stress.name,
        stress.trouble,
        draw,
        goal.precision,
        plain.sqnr,
        theirs.sqnr,
        calibrator,
        score.sqnr,
        score.cosine,
        _identical(stages, judge.feeds, outputs),
        goal.text,
        goal.reached(score, plain) and len(int16) <= goal.most_int16,
        rewrites,
        int16,
    )


def _means(compiled: CompiledModel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the rewrites, and of the tensors of 16 bits."""
    if compiled.planned is None:
        return tuple(each.name for each in compiled.calibration.rewrites) if compiled.calibration else (), ()
    plan = compiled.planned.plan
    wide = (name for name in sorted(plan.tensors) if plan.dtype_of(name) == "int16")
    return tuple(each.name for each in plan.rewrites), tuple(wide)


def _identical(
    stages: Stages, feeds: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[Mapping[str, np.ndarray]]
) -> bool:
    """Whether the simulated program's outputs are those of the integer reference, bit by bit."""
    reference = IntegerReference.over(stages.precise, stages.parted.module, stages.graphs)
    wanted = [reference.run(feed) for feed in feeds]
    return all(
        np.array_equal(run[name], other[name]) for run, other in zip(outputs, wanted, strict=True) for name in run
    )


def table_of(rows: Sequence[Row]) -> Table:
    """A line for every draw."""
    table = Table(*COLUMNS, box=None)
    for row in rows:
        table.add_row(
            row.name,
            row.trouble,
            str(row.draw),
            row.precision,
            f"{row.plain:.1f}",
            f"{row.onnxruntime:.1f}",
            row.calibrator,
            f"{row.here:.1f}",
            f"{row.cosine:.5f}",
            "yes" if row.identical else "NO",
            row.goal,
            "yes" if row.reached else "not yet",
            ", ".join((*row.rewrites, *(f"{name} int16" for name in row.int16))) or "-",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(GOALS)}; default: all")
    parser.add_argument("--seeds", type=int, default=DRAWS, metavar="N", help="draws of each set")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    drawn = ((make(draw), draw) for make in SETS for draw in range(chosen.seeds))
    rows = [
        measure(stress, draw, goal)
        for stress, draw in drawn
        if stress.name in (chosen.sets or GOALS)
        for goal in GOALS[stress.name]
    ]
    Console(width=200).print(table_of(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in rows], indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
