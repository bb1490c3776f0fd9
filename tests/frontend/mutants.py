"""Seeded damage to a file's bytes: truncation, flipped bytes, runs of 0x00 and 0xFF, copied and swapped pieces."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from torq_byoc.errors import TorqError


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """One damaged copy."""
    out = bytearray(data)
    kind = rng.integers(6)
    # Half of the damage goes to the first kilobyte of structure, where a random position in the weights would not.
    reach = len(out) if rng.integers(2) else min(len(out), 1024)
    start = int(rng.integers(reach))
    length = int(rng.integers(1, 64))
    if kind == 0:
        return bytes(out[:start])
    if kind == 1:
        for _ in range(int(rng.integers(1, 8))):
            out[int(rng.integers(reach))] ^= int(rng.integers(1, 256))
    elif kind in (2, 3):
        out[start : start + length] = (b"\0" if kind == 2 else b"\xff") * len(out[start : start + length])
    elif kind == 4:
        other = int(rng.integers(reach))
        out[start : start + length] = out[other : other + length]
    else:
        del out[start : start + length]
    return bytes(out)


def survives(data: bytes, folder: Path) -> str:
    """Load and prepare damaged bytes; returns the error's class name or ``ok``.  Anything but a TorqError escapes."""
    from torq_byoc.frontend import load_model, prepare

    path = folder / "mutant.onnx"
    path.write_bytes(data)
    try:
        prepare(load_model(path))
    except TorqError as error:
        if not (error.what and error.remedy):
            raise AssertionError(f"{error.kind} without a remedy: {error}") from error
        return error.kind
    return "ok"


if __name__ == "__main__":
    # mutants.py FILE FOLDER FIRST COUNT: damage FILE with the seeds FIRST .. FIRST + COUNT - 1.
    seed_file, work, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    for seed in range(first, first + count):
        print(seed, flush=True)
        survives(mutate(seed_file.read_bytes(), np.random.default_rng(seed)), work)
