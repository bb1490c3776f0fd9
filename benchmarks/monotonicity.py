"""Does more memory, or one more slice, ever make a network slower?

Usage::

    python -m benchmarks.monotonicity [NETWORK | MODEL.onnx ...] [--lram 512 384 ...] [--slices 1 2 4] [--json FILE]

Without names: mobilenet_v2 and the networks that compile in a second or two.  Every network is compiled for every
amount of LRAM with two slices, and for every number of slices with the largest amount.  A step that takes more cycles
with more of either is a violation, and so is half the LRAM at more than 1.25 times the cycles.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.zoo import SMALL, Job, arguments, job, networks
from torq_byoc.compiler import compile_model
from torq_byoc.errors import LramOverflowError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.report.measure import measure

DEFAULT = ("mobilenet_v2_int8", *SMALL)
LRAM_KIB = (512, 384, 256, 192, 128, 64)
SLICES = (1, 2, 4)
HALF_LIMIT = 1.25
"""Cycles with half the LRAM over those with all of it."""

Cycles = Mapping[int, int | None]
"""Cycles by KiB or by slices; None where the network does not fit."""


@dataclass(frozen=True)
class Violation:
    """Two machines of which the larger one should have been as fast as the smaller, or half of it fast enough."""

    what: str
    smaller: int
    larger: int
    ratio: float

    def __str__(self) -> str:
        return f"{self.what} {self.smaller} / {self.larger}: {self.ratio:.3f}"


def cycles_on(job: Job, config: NpuConfig) -> int | None:
    """Cycles of a network on a machine; None when some operator does not fit its LRAM."""
    try:
        return measure(compile_model(job.model, job.on(config).options, name=job.name)).total_cycles
    except LramOverflowError:
        return None


def slower_when_larger(what: str, cycles: Cycles) -> list[Violation]:
    """Pairs of neighbouring sizes of which the larger takes more cycles, or has no program although the smaller has."""
    found = []
    for smaller, larger in itertools.pairwise(sorted(cycles)):
        few, many = cycles[smaller], cycles[larger]
        if few is not None and (many is None or many > few):
            found.append(Violation(what, smaller, larger, few / many if many else 0.0))
    return found


def steep_halves(cycles: Cycles) -> list[Violation]:
    """Amounts of LRAM whose half costs more than the limit, or has no program."""
    found = []
    for half in sorted(cycles):
        whole, few = cycles.get(2 * half), cycles[half]
        if whole is not None and (few is None or few > HALF_LIMIT * whole):
            found.append(Violation("half LRAM", half, 2 * half, few / whole if few else float("inf")))
    return found


def sweep(job: Job, lram_kib: tuple[int, ...], slices: tuple[int, ...]) -> dict[str, Any]:
    """Cycles of one network on all machines, with the violations as text."""
    base = replace(NpuConfig(), lram_bytes=max(lram_kib) << 10)
    by_lram = {kib: cycles_on(job, replace(base, lram_bytes=kib << 10)) for kib in lram_kib}
    known = {base.slices: by_lram[max(lram_kib)]}
    by_slices = {n: known[n] if n in known else cycles_on(job, replace(base, slices=n)) for n in slices}
    violations = [
        *slower_when_larger("LRAM", by_lram),
        *steep_halves(by_lram),
        *slower_when_larger("slices", by_slices),
    ]
    return {
        "network": job.name,
        "lram": {str(kib): cycles for kib, cycles in by_lram.items()},
        "slices": {str(count): cycles for count, cycles in by_slices.items()},
        "violations": [str(violation) for violation in violations],
    }


def row(result: Mapping[str, Any]) -> list[str]:
    """The table row of one network."""
    counts = [*result["lram"].values(), *result["slices"].values()]
    return [
        result["network"],
        *(f"{cycles:,}" if cycles else "does not fit" for cycles in counts),
        "; ".join(result["violations"]) or "none",
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lram", nargs="+", type=int, default=LRAM_KIB, help="KiB")
    parser.add_argument("--slices", nargs="+", type=int, default=SLICES)
    options = parser.parse_args()
    lram, slices = tuple(options.lram), tuple(options.slices)
    columns = ("network", *(f"{kib} KiB" for kib in lram), *(f"{n} slices" for n in slices), "violations")
    table, results = Table(*columns, box=None), []
    for network in networks(options.networks or DEFAULT):
        results.append(sweep(job(network, options.precision), lram, slices))
        table.add_row(*row(results[-1]))
    Console(width=240).print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
