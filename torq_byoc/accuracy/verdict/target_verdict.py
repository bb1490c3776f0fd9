"""Whether mixed precision reaches the target that it was planned for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torq_byoc.accuracy.verdict.output_check import OutputRow
from torq_byoc.accuracy.verdict.verdict import Miss
from torq_byoc.quantize.planning.planner import Planned
from torq_byoc.quantize.planning.target import PrecisionTarget

SECTION = "target"
_WORDS = {"sqnr": "SQNR", "cosine": "cosine", "metric": "metric"}


def target_misses(
    target: PrecisionTarget | None, planned: Planned | None, outputs: Sequence[OutputRow]
) -> tuple[Miss, ...]:
    """What of a target is not reached, by every output part on the evaluation data and by the plan itself.

    Args:
        target: what was asked for; None where nothing was.
        planned: the plan and what it reaches on the calibration data; None where it was not made here.
        outputs: of the check.
    """
    if target is None:
        return ()
    return (*_of_outputs(target, outputs), *(_of_plan(target, planned) if planned else ()))


def _of_outputs(target: PrecisionTarget, outputs: Iterable[OutputRow]) -> Iterator[Miss]:
    for row in outputs:
        where = row.output if row.part == row.output else f"{row.output}/{row.part}"
        for name, found, wanted in (
            ("sqnr", row.figures.sqnr, target.sqnr),
            ("cosine", row.figures.cosine, target.cosine),
        ):
            yield from _missed(where, name, found, wanted)


def _of_plan(target: PrecisionTarget, planned: Planned) -> Iterator[Miss]:
    reached = planned.reached
    for name, found, wanted in (
        ("sqnr", reached.sqnr, target.sqnr),
        ("cosine", reached.cosine, target.cosine),
        ("metric", reached.metric, target.least),
    ):
        yield from _missed("the plan on the calibration data", name, found, wanted)


def _missed(where: str, name: str, found: float | None, wanted: float | None) -> Iterator[Miss]:
    if found is not None and wanted is not None and not found >= wanted:
        sentence = f"{where}: {_WORDS[name]} {found:.6g}, the target is {wanted:.6g}"
        yield Miss(SECTION, where, name, found, wanted, sentence)
