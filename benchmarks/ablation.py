"""What each pass is worth: a model compiled with all of them, and without each one in turn.

Usage::

    python -m benchmarks.ablation [NETWORK | MODEL.onnx ...] [--precision int8] [--without PASS ...] [--json FILE]

Without names the three experiments are taken (``benchmarks.experiments``), and a second table sets the settings that
stand for the improvements that the vendor's developers published for the same three operators beside theirs.  A pass
may make up for another one, so some are left out together as well.  Factors are microseconds against those of the full
set.  ``--without`` leaves out the named passes only, one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.experiments import EXPERIMENTS, PROFILES
from benchmarks.zoo import arguments, job, networks
from torq_byoc.codegen.passes import NAMES
from torq_byoc.compilation.options import Options
from torq_byoc.compiler import compile_model
from torq_byoc.errors import LramOverflowError
from torq_byoc.report.summary import summarize

ALL: tuple[str, ...] = ()
THROUGH_XRAM = ("fusion", "residency", "clean-copies")
SETTINGS: tuple[tuple[str, ...], ...] = (
    ALL,
    *((name,) for name in NAMES),
    THROUGH_XRAM,
    ("double-buffering", "prefetch"),
    NAMES,
)
"""Passes that are left out, one setting a row."""
COLUMNS = (
    "without",
    "in",
    "bytes in",
    "out",
    "bytes out",
    "cycles",
    *(f"us {profile}" for profile in PROFILES),
    "factor",
)


@dataclass(frozen=True)
class Fix:
    """A published improvement, and what stands for it here.

    Attributes:
        what: the improvement.
        published: where the vendor's developers made it, and the microseconds before and after.
        experiment: where it shows here.
        without: the passes that have to be left out to be where they were.
    """

    what: str
    published: tuple[str, float, float]
    experiment: str
    without: tuple[str, ...]


FIXES = (
    Fix("the whole chain in one fuse group", ("erf", 1834.9, 888.0), "erf", THROUGH_XRAM),
    Fix("each slice takes its part before the value leaves LRAM", ("max_pool", 369.3, 312.9), "max_pool", THROUGH_XRAM),
    Fix("no store of what nobody reads again", ("conv1d", 5091.1, 4218.8), "erf", ("dead-stores",)),
    Fix("no second load of what is still there", ("conv1d", 5091.1, 4218.8), "conv1d", ("loop-invariant",)),
)


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to compile again and again."""

    name: str
    model: onnx.ModelProto
    options: Options

    def figures(self, without: tuple[str, ...]) -> dict[str, Any]:
        """Transfers, bytes, cycles and microseconds of one setting; ``error`` where it has no program."""
        found: dict[str, Any] = {"subject": self.name, "without": list(without), "us": {}}
        try:
            compiled = compile_model(self.model, replace(self.options, disabled_passes=without), name=self.name)
        except LramOverflowError as error:
            return {**found, "error": str(error)}
        for profile in PROFILES:
            summary = summarize(compiled, profile)
            found["us"][profile] = summary["latency_us"]
            if profile == PROFILES[0]:
                dma = {key: summary["dma"][key] for key in ("in_transfers", "in_bytes", "out_transfers", "out_bytes")}
                found |= {"cycles": summary["cycles"]["total"], **dma, "passes": summary["passes"]}
        return found


def experiments() -> list[Subject]:
    """The three experiments."""
    return [Subject(e.name, e.build(), Options(precision=e.precision)) for e in EXPERIMENTS]


def ablation(subject: Subject, settings: Iterable[tuple[str, ...]] = SETTINGS) -> Iterator[dict[str, Any]]:
    """Figures of every setting; ``factor`` compares with the first one, which leaves out nothing."""
    base: Mapping[str, float] = {}
    for without in settings:
        found = subject.figures(without)
        base = base or found["us"]
        yield {**found, "factor": {profile: us / base[profile] for profile, us in found["us"].items()}}


def row(found: Mapping[str, Any]) -> list[str]:
    """The table row of one setting."""
    without = found["without"]
    name = "(everything)" if set(without) == set(NAMES) else ", ".join(without) or "-"
    if "error" in found:
        return [name, found["error"]]
    counts = [f"{found[key]:,}" for key in ("in_transfers", "in_bytes", "out_transfers", "out_bytes", "cycles")]
    times = [f"{found['us'][profile]:.1f}" for profile in PROFILES]
    return [name, *counts, *times, f"{found['factor'][PROFILES[0]]:.2f}"]


def fix_table(results: Iterable[dict[str, Any]]) -> Table:
    """A row for each of the published improvements."""
    table = Table("published improvement", "published us", "here without", "us here", "bytes saved", box=None)
    by_setting = {(found["subject"], tuple(found["without"])): found for found in results}
    for fix in FIXES:
        name, before, after = fix.published
        full, left_out = by_setting[fix.experiment, ALL], by_setting[fix.experiment, fix.without]
        slow, fast = left_out["us"][PROFILES[0]], full["us"][PROFILES[0]]
        theirs = f"{name}: {before:.1f} -> {after:.1f} ({before / after:.2f})"
        ours = f"{fix.experiment}: {slow:.1f} -> {fast:.1f} ({slow / fast:.2f})"
        moved = sum(left_out[key] - full[key] for key in ("in_bytes", "out_bytes"))
        table.add_row(fix.what, theirs, ", ".join(fix.without), ours, f"{moved:,}")
    return table


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--without", nargs="+", default=[], choices=NAMES, metavar="PASS", help="leave out only these")
    chosen = parser.parse_args()
    settings = (ALL, *((name,) for name in chosen.without)) if chosen.without else SETTINGS
    subjects = experiments()
    if chosen.networks:
        jobs = [job(network, chosen.precision) for network in networks(chosen.networks)]
        subjects = [Subject(one.name, one.model, one.options) for one in jobs]
    console = Console(width=200)
    results: list[dict[str, Any]] = []
    for subject in subjects:
        table = Table(*COLUMNS, box=None, title=subject.name, title_justify="left")
        for found in ablation(subject, settings):
            results.append(found)
            table.add_row(*row(found))
        console.print(table)
    if not chosen.networks and not chosen.without:
        console.print(fix_table(results))
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
