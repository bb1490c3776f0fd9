"""Single faults in every stage of small networks: does the check name the layer and the class?

Usage::

    python -m benchmarks.accuracy.faults [--count 200] [--seed 1] [--only NAME] [--json]

Each fault is made in what a stage has left (the prepared or the quantized model, an operator graph, the bytes of a
program, the host module), and the stages after it are made anew from that, as if ours had erred there.  The check is
given the result and the data, nothing else.  A fault counts when it moves an output on that data; others are drawn
again and counted apart.  It is found when the first layer that the check calls wrong by itself is the layer of the
fault, in its class.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy.fault import Fault, Injector
from benchmarks.accuracy.fault_subjects import Subject, outputs_of, subjects
from benchmarks.accuracy.graph_faults import GRAPH
from benchmarks.accuracy.host_faults import HOST
from benchmarks.accuracy.model_faults import IMPORT, QUANTIZATION
from benchmarks.accuracy.program_faults import CODE_GENERATION, TILING
from torq_byoc.accuracy.causes.attribution import layer_deviations
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.import_check import ImportCheck
from torq_byoc.accuracy.layers.layer_check import LayerCheck
from torq_byoc.accuracy.programs.program_check import ProgramCheck
from torq_byoc.accuracy.references.float_reference import OnnxRuntime
from torq_byoc.accuracy.stages import Stages
from torq_byoc.errors import TorqError

INJECTORS: Mapping[Stage, Sequence[Injector]] = {
    Stage.IMPORT: IMPORT,
    Stage.QUANTIZATION: QUANTIZATION,
    Stage.ROUNDING: GRAPH,
    Stage.TILING: TILING,
    Stage.CODE_GENERATION: CODE_GENERATION,
    Stage.HOST: HOST,
}
Part = Callable[[Stages], tuple[Deviation, ...]]
_ATTEMPTS = 100
"""Draws for one fault, after which a class is taken to have no place in the chosen network."""


@dataclass(frozen=True)
class Outcome:
    """What the check said of a fault.

    Attributes:
        subject, kind, stage, layers, where: of the fault.
        found: the first layer that is wrong by itself; None when there is none.
        refused: the verifier or the host refuses to run the faulty model.
    """

    subject: str
    kind: str
    stage: Stage
    layers: tuple[str, ...]
    where: str
    found: Deviation | None
    refused: bool

    @property
    def right(self) -> bool:
        """Whether layer and class are those of the fault."""
        return self.found is not None and self.found.stage == self.stage and self.found.node in self.layers


class Checker:
    """The check of all stages of a subject; stages that a fault leaves alone are checked once."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._clean = {key: part(subject.stages) for key, part in self._parts().items()}

    def first(self, stages: Stages) -> Deviation | None:
        """The first layer that is wrong by itself, and was not before the fault."""
        clean, known = self._subject.stages, {(d.stage, d.node) for found in self._clean.values() for d in found}
        changed = {
            "import": stages.prepared is not clean.prepared,
            "layers": stages.precise is not clean.precise or stages.graphs is not clean.graphs,
            "program": stages.compiled is not clean.compiled,
        }
        for key, part in self._parts().items():
            for deviation in part(stages) if changed[key] else self._clean[key]:
                if deviation.local and (deviation.stage, deviation.node) not in known:
                    return deviation
        return None

    def _parts(self) -> Mapping[str, Part]:
        return {"import": self._imports, "layers": self._layers, "program": self._programs}

    def _imports(self, stages: Stages) -> tuple[Deviation, ...]:
        check = ImportCheck(OnnxRuntime(stages.original), stages.prepared)
        for sample in self._subject.samples:
            check.take(sample)
        return check.deviations()

    def _layers(self, stages: Stages) -> tuple[Deviation, ...]:
        check = LayerCheck(stages)
        for sample in self._subject.samples:
            check.take(sample)
        return layer_deviations(check.rows())

    def _programs(self, stages: Stages) -> tuple[Deviation, ...]:
        check = ProgramCheck(stages)
        return next(filter(None, map(check.deviations, self._subject.samples)), ())


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject faults; print how many were found, and each miss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="NAME", help="networks whose name begins so")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    with np.errstate(all="ignore"):  # what a fault makes of floats is no news
        outcomes, silent = run(list(subjects(options.only)), options.count, options.seed)
    seconds = time.perf_counter() - started
    if options.json:
        print(json.dumps(_as_data(outcomes, silent, seconds), indent=1))
    else:
        _show(outcomes, silent, seconds)
    return 0


def run(chosen: Sequence[Subject], count: int, seed: int) -> tuple[list[Outcome], int]:
    """Inject so many faults, the classes in turn; the outcomes, and the number of faults that changed no output."""
    rng = np.random.default_rng(seed)
    checkers: dict[str, Checker] = {}
    outcomes: list[Outcome] = []
    silent = 0
    while len(outcomes) < count:
        stage = list(INJECTORS)[len(outcomes) % len(INJECTORS)]
        subject = chosen[int(rng.integers(len(chosen)))]
        fault = _draw(subject, stage, rng)
        if fault is None:
            continue
        results = outputs_of(fault.stages, subject.samples)
        if results is not None and _same(results, subject.outputs):
            silent += 1
            continue
        checker = checkers.setdefault(subject.name, Checker(subject))
        found = checker.first(fault.stages)
        outcomes.append(
            Outcome(subject.name, fault.kind, stage, fault.layers, fault.where, found, refused=results is None)
        )
    return outcomes, silent


def _draw(subject: Subject, stage: Stage, rng: np.random.Generator) -> Fault | None:
    """A fault of a class; None where the subject has no place for one, or nothing can be compiled from it."""
    injectors = INJECTORS[stage]
    for _ in range(_ATTEMPTS):
        try:
            fault = injectors[int(rng.integers(len(injectors)))](subject, rng)
        except TorqError:
            continue
        if fault is not None:
            return fault
    return None


def _same(results: list[dict[str, np.ndarray]], clean: list[dict[str, np.ndarray]] | None) -> bool:
    assert clean is not None, "the subject without fault runs"
    pairs = zip(results, clean, strict=True)
    return all(mine[name].tobytes() == theirs[name].tobytes() for mine, theirs in pairs for name in theirs)


def _show(outcomes: Sequence[Outcome], silent: int, seconds: float) -> None:
    console = Console(width=160)
    stages = list(INJECTORS)
    confusion = Table("fault in", *(stage.value for stage in stages), "nothing", "right layer and class")
    for stage in stages:
        own = [outcome for outcome in outcomes if outcome.stage == stage]
        named = Counter(outcome.found.stage if outcome.found else None for outcome in own)
        right = sum(outcome.right for outcome in own)
        confusion.add_row(stage.value, *(str(named[s]) for s in (*stages, None)), f"{right} of {len(own)}")
    console.print(confusion)
    kinds = Table("kind", "faults", "found")
    for kind in sorted({outcome.kind for outcome in outcomes}):
        own = [outcome for outcome in outcomes if outcome.kind == kind]
        kinds.add_row(kind, str(len(own)), str(sum(outcome.right for outcome in own)))
    console.print(kinds)
    for outcome in outcomes:
        if not outcome.right:
            console.print(
                f"missed: {outcome.subject}: {outcome.kind} ({outcome.stage.value}, {'/'.join(outcome.layers)}): "
                f"{outcome.where}\n  found: {outcome.found}",
                highlight=False,
            )
    right, refused = sum(outcome.right for outcome in outcomes), sum(outcome.refused for outcome in outcomes)
    console.print(
        f"{right} of {len(outcomes)} ({100 * right / len(outcomes):.1f} %) with the right layer and class; "
        f"{refused} of them are refused before they run; {silent} changed no output; {seconds:.0f} s"
    )


def _as_data(outcomes: Sequence[Outcome], silent: int, seconds: float) -> dict[str, object]:
    return {
        "faults": len(outcomes),
        "right": sum(outcome.right for outcome in outcomes),
        "silent": silent,
        "seconds": round(seconds, 1),
        "outcomes": [
            {
                "subject": outcome.subject,
                "kind": outcome.kind,
                "stage": outcome.stage.value,
                "layers": list(outcome.layers),
                "where": outcome.where,
                "right": outcome.right,
                "found": None if outcome.found is None else [outcome.found.stage.value, outcome.found.node],
            }
            for outcome in outcomes
        ],
    }


if __name__ == "__main__":
    raise SystemExit(main())
