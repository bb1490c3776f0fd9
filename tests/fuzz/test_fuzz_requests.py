"""Damaged models before the commands that judge them, and damaged files of decisions, through the command line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import yaml

from tests.cli.tools import SHAPE, conv_model
from tests.fuzz import npz_mutants, onnx_mutants
from tests.fuzz.awkward import Rng, edited, pick
from tests.fuzz.byte_mutants import damaged
from tests.fuzz.harness import Torq
from tests.fuzz.tally import DEFECTS, Tally
from tests.quantize.planning.models import residual_mismatch

MODELS = {"pooled": conv_model(), "residual": residual_mismatch()[0]}
SHAPES = {"pooled": (1, *SHAPE[1:]), "residual": (1, 16, 16, 16)}
QUICK, FULL = range(24), range(20_000, 20_200)
THRESHOLDS = {
    "outputs": {"min_sqnr": 10.0, "min_cosine": 0.9, "max_error": 4.0, "names": {"y": {"min_sqnr": 5.0}}},
    "layers": {"min_sqnr": 5.0, "names": {"dense": {"min_local_sqnr": 3.0}}},
}
SPELLED = (b"\\ud800", b"NaN", b"1e999", b"-0", b"[" * 3000, b"", b"null", b"\xff\xfe")
"""What replaces a word of a text."""


@pytest.fixture(scope="module")
def torq(tmp_path_factory):
    server = Torq(tmp_path_factory.mktemp("fuzz") / "work")
    yield server
    server.close()


def data(name: str, samples: int) -> bytes:
    rng = np.random.default_rng(5)
    return npz_mutants.npz({"x": rng.standard_normal((samples, *SHAPES[name][1:])).astype(np.float32)})


@pytest.fixture(scope="module")
def written(torq) -> dict[str, bytes]:
    """The files of decisions about the pooled model, as commands write them."""
    given = {"m.onnx": MODELS["pooled"].SerializeToString(), "c.npz": data("pooled", 4)}
    mixed = ("--calib", "c.npz", "--precision", "mixed", "--target-sqnr", "60")
    int8 = ("--calib", "c.npz")
    commands = {
        "plan": ("compile", "-o", "m.torq", *mixed, "--save-precision-plan"),
        "schedule": ("compile", "-o", "m.torq", *int8, "--save-schedule"),
        "records": ("tune", *int8, "--trials", "3", "--records"),
    }
    files = {"thresholds": json.dumps(THRESHOLDS).encode()}
    for name, (command, *options) in commands.items():
        outcome = torq.run([command, "m.onnx", *options, name], given)
        assert outcome.code in (0, 1), outcome.stderr
        files[name] = (torq.folder / name).read_bytes()
    return files


def damaged_text(text: bytes, rng: Rng, dump: Any) -> bytes:
    """One damaged copy: its bytes, one of its words, or its values."""
    kind = rng.integers(4)
    if kind == 0:
        return damaged(text, rng)
    if kind == 1:
        words = text.split(b'"')
        words[int(rng.integers(len(words)))] = pick(rng, SPELLED)
        return b'"'.join(words)
    return dump(edited(json.loads(text), rng)).encode()


def fuzz_decisions(torq: Torq, written: dict[str, bytes], numbers: range) -> None:
    tally = Tally()
    given = {"m.onnx": MODELS["pooled"].SerializeToString(), "c.npz": data("pooled", 4)}
    commands = {
        "plan": ("quantize", "-o", "q.onnx", "--precision", "mixed", "--precision-plan"),
        "schedule": ("compile", "-o", "m.torq", "--schedule"),
        "records": ("compile", "-o", "m.torq", "--records"),
        "thresholds": ("check", "--data", "c.npz", "--thresholds"),
    }
    for seed in numbers:
        rng = np.random.default_rng(seed)
        name = list(commands)[seed % len(commands)]
        dump = yaml.safe_dump if name == "thresholds" else json.dumps
        command, *options = commands[name]
        files = {**given, "f": damaged_text(written[name], rng, dump)}
        outcome = torq.run([command, "m.onnx", "--calib", "c.npz", *options, "f", "--json"], files)
        tally.add(seed, name, outcome, judges=name in ("plan", "thresholds"))
    tally.judge()


def fuzz_judged_models(torq: Torq, numbers: range) -> None:
    tally = Tally()
    for seed in numbers:
        rng = np.random.default_rng(seed)
        name = list(MODELS)[seed % len(MODELS)]
        given = {"m.onnx": onnx_mutants.mutant(MODELS[name].SerializeToString(), rng), "c.npz": data(name, 4)}
        commands = (
            ("check", "m.onnx", "--data", "c.npz", "--layer-samples", "1", "--report", "r.html"),
            ("quantize", "m.onnx", "-o", "q.onnx", "--precision", "mixed", "--target-sqnr", "35"),
            ("compile", "m.onnx", "-o", "m.torq", "--precision", "int8"),
            ("tune", "m.onnx", "--records", "r", "--trials", "2", "--precision", pick(rng, ("int16", "mixed"))),
        )
        command = commands[seed // len(MODELS) % len(commands)]
        tally.add(
            seed,
            f"{command[0]} {name}",
            torq.run([*command, "--calib", "c.npz", "--json"], given),
            DEFECTS,
            judges=True,
        )
    tally.judge()


def test_damaged_files_of_decisions(torq, written):
    fuzz_decisions(torq, written, QUICK)


def test_damaged_models_that_are_judged(torq):
    fuzz_judged_models(torq, QUICK)


@pytest.mark.slow
def test_two_hundred_damaged_files_of_decisions(torq, written):
    fuzz_decisions(torq, written, FULL)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_two_hundred_damaged_models_that_are_judged(torq, part):
    fuzz_judged_models(torq, FULL[part * 50 : part * 50 + 50])
