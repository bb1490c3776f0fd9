"""The allocator against the public MiniMalloc instances: memory needed over the capacity that is known to suffice.

Usage::

    python -m benchmarks.minimalloc FOLDER [--effort 0..3] [--only A K ...] [--json FILE]

FOLDER holds files named ``NAME.CAPACITY.csv`` with columns id, lower, upper (not included) and size.  Every
instance is known to fit its capacity; the lower bound is the most that is alive at one time.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from torq_byoc.codegen.allocation import Request, max_live, pack

COLUMNS = ("instance", "buffers", "capacity", "lower bound", "needed", "needed / capacity", "CPU s")
ALIGN = 1024
"""All sizes and capacities of the public instances are multiples of this."""


@dataclass(frozen=True)
class Instance:
    """Buffers with lifetimes, and bytes that are known to suffice for them."""

    name: str
    capacity: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Result:
    """Bytes that one instance needs, and the processor seconds that it took to find out."""

    name: str
    buffers: int
    capacity: int
    bound: int
    needed: int
    seconds: float


def read_instance(path: Path) -> Instance:
    """An instance from its file."""
    name, capacity = path.stem.rsplit(".", 1)
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [{key: int(value) for key, value in row.items()} for row in csv.DictReader(lines)]
    return Instance(name, int(capacity), tuple(Request(r["size"], r["lower"], r["upper"] - 1) for r in rows))


def read_instances(folder: Path) -> list[Instance]:
    """All instances of a folder, by name."""
    return [read_instance(path) for path in sorted(folder.glob("*.csv"))]


def measure(instance: Instance, effort: int) -> Result:
    """Pack one instance."""
    started = time.process_time()
    packed = pack(instance.requests, ALIGN, effort)
    seconds = time.process_time() - started
    bound = max_live(instance.requests)
    return Result(instance.name, len(instance.requests), instance.capacity, bound, packed.height, seconds)


def table(results: Sequence[Result]) -> Table:
    """One row an instance."""
    rows = Table(*COLUMNS, box=None)
    for r in results:
        share = f"{r.needed / r.capacity:.4f}"
        rows.add_row(
            r.name, str(r.buffers), f"{r.capacity:,}", f"{r.bound:,}", f"{r.needed:,}", share, f"{r.seconds:.2f}"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--effort", type=int, default=1, choices=range(4))
    parser.add_argument("--only", nargs="+", default=[], help="names of instances")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    instances = [i for i in read_instances(arguments.folder) if not arguments.only or i.name in arguments.only]
    results = [measure(instance, arguments.effort) for instance in instances]
    Console(width=120).print(table(results))
    if arguments.json:
        text = json.dumps([asdict(result) for result in results], indent=2, sort_keys=True)
        arguments.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
