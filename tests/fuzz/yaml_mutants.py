"""Damaged hardware descriptions: bytes, values of the parsed data, and YAML that does more than describe."""

from __future__ import annotations

import numpy as np
import yaml

from tests.fuzz.awkward import Rng, edited, pick
from tests.fuzz.byte_mutants import damaged

DOCUMENTS = (
    "",
    "---\n---\n",
    "- 1\n- 2\n",
    "lram_bytes",
    "!!python/object/apply:os.abort []\n",
    "name: !!binary AAAA\n",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\ne: &e [*d, *d]\n",
    "&a [*a]\n",
    "lram_bytes: &x {limits: *x}\n",
    "? [1, 2]\n: 3\n",
    "? {a: b}\n: 3\n",
    "lram_bytes: 1\nlram_bytes: 2\n",
    "slices: 0x10000000000000000000000\n",
    "slices: 1e400\n",
    "dma_peak: .nan\n",
    "dma_peak: .inf\n",
    "slices: 2024-01-01\n",
    "slices: 1:30:00\n",
    "\tslices: 2\n",
    "slices: [" * 3000,
    "{" * 3000,
    "%YAML 9.9\n---\nslices: 2\n",
)


def mutant(text: str, rng: Rng) -> bytes:
    """One damaged description: a quarter by its bytes, most by its values."""
    kind = rng.integers(8)
    if kind < 2:
        return damaged(text.encode(), rng)
    if kind == 2:
        document = pick(rng, DOCUMENTS)
        return document.encode(pick(rng, ("utf-8", "utf-8", "utf-16", "utf-32-le")))
    data = yaml.safe_load(text)
    if kind < 5:
        return yaml.safe_dump(edited(data, rng)).encode()
    return yaml.safe_dump(_scaled(data, rng)).encode()


def _scaled(data: dict, rng: Rng) -> dict:
    """Plausible machines: a few numbers a little or a lot larger or smaller."""
    for _ in range(int(rng.integers(1, 5))):
        table = data["limits"] if rng.integers(2) else data
        name = pick(rng, [key for key, value in table.items() if isinstance(value, int | float)])
        factor = float(pick(rng, (0, 0.25, 0.5, 2, 3, 4, 16, 1000, -1)))
        table[name] = type(table[name])(np.float64(table[name]) * factor + int(rng.integers(2)))
    return data
