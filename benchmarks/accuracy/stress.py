"""Six models that are hard to quantize, by the default int8 compilation and by onnxruntime's static quantization.

Usage::

    python -m benchmarks.accuracy.stress [M1 ...] [--seeds N] [--json FILE]

Every model is compiled with calibration data alone, its program simulated and held to the integer reference bit by
bit, and its outputs compared with those of the float model on fresh data: SQNR in dB, and cosine, of the worst part of
the outputs.  onnxruntime's models are evaluated in float64, so that its integer kernels play no part.  A set counts as
reached when all of its draws reach the goal; nothing is tuned to one.
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
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.judge import Judge, Score

CALIBRATION_SAMPLES, EVALUATION_SAMPLES = 16, 8
DRAWS = 3
COLUMNS = (
    "set",
    "trouble",
    "draw",
    "min/max",
    "onnxruntime",
    "its calibrator",
    "here",
    "cosine",
    "0 LSB",
    "goal",
    "reached",
    "rewrites",
)


@dataclass(frozen=True)
class Goal:
    """What a set must reach in a precision, without being told anything else.

    Attributes:
        text: as the table shows it.
        reached: whether outputs are good enough, given their score and that of the plain min/max quantization.
        precision: as ``torq_byoc.compile`` takes it.
    """

    text: str
    reached: Callable[[Score, Score], bool]
    precision: str = "int8"


def _decibels(least: float) -> Goal:
    return Goal(f">= {least:g} dB", lambda score, _: score.sqnr >= least)


GOALS: Mapping[str, Goal] = {
    "M1": Goal("class cosine >= 0.999", lambda score, _: score.cosine >= 0.999),
    "M2": _decibels(42),
    "M3": _decibels(51),
    "M4": _decibels(34),
    "M5": _decibels(40),
    "M6": Goal(">= min/max + 2 dB", lambda score, plain: score.sqnr >= plain.sqnr + 2.0),
}


@dataclass(frozen=True)
class Row:
    """One draw of one set; SQNR in dB and cosines are those of the worst part of the outputs.

    Attributes:
        plain: of the quantization with the ranges of all values seen, and no more.
        onnxruntime, calibrator: of onnxruntime's best, and which that is.
        here, cosine: of the simulated program.
        identical: whether it computes the bits of the integer reference.
        goal, reached: see ``Goal``.
        rewrites: names of those that were applied.
    """

    name: str
    trouble: str
    draw: int
    plain: float
    onnxruntime: float
    calibrator: str
    here: float
    cosine: float
    identical: bool
    goal: str
    reached: bool
    rewrites: tuple[str, ...]


def measure(stress: StressSet, draw: int) -> Row:
    """Compile, simulate and compare one draw."""
    model = prepare(stress.model)
    calibration = stress.data(CALIBRATION_SAMPLES, 1000 + draw)
    judge = Judge(model, samples(model, stress.data(EVALUATION_SAMPLES, 2000 + draw)))
    plain = judge.of(quantize_model(model, calibration, method="minmax", correct_biases=False))
    calibrator, theirs = best_score(stress.model, tuple(samples(model, calibration)), judge)
    goal = GOALS[stress.name]
    stages = stages_of(stress.model, Options(precision=goal.precision, calibration=calibration), name=stress.name)
    outputs = [stages.compiled.run(feed) for feed in judge.feeds]
    score = judge.score(outputs)
    applied = stages.compiled.calibration.rewrites if stages.compiled.calibration else ()
    return Row(
        stress.name,
        stress.trouble,
        draw,
        plain.sqnr,
        theirs.sqnr,
        calibrator,
        score.sqnr,
        score.cosine,
        _identical(stages, judge.feeds, outputs),
        goal.text,
        goal.reached(score, plain),
        tuple(each.name for each in applied),
    )


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
            f"{row.plain:.1f}",
            f"{row.onnxruntime:.1f}",
            row.calibrator,
            f"{row.here:.1f}",
            f"{row.cosine:.5f}",
            "yes" if row.identical else "NO",
            row.goal,
            "yes" if row.reached else "not yet",
            ", ".join(row.rewrites) or "-",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(GOALS)}; default: all")
    parser.add_argument("--seeds", type=int, default=DRAWS, metavar="N", help="draws of each set")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    drawn = ((make(draw), draw) for make in SETS for draw in range(chosen.seeds))
    rows = [measure(stress, draw) for stress, draw in drawn if stress.name in (chosen.sets or GOALS)]
    Console(width=180).print(table_of(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in rows], indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
