"""Damaged models, containers, hardware descriptions and data, through the command line, each in its own process.

No signal, no traceback, no hang; exit code 0, 1 or 2; one error message exactly when it is not 0, and then no
file is left.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.tools import SHAPE, conv_model
from tests.frontend.fuzz_seeds import seeds
from tests.fuzz import container_mutants, npz_mutants, onnx_mutants, yaml_mutants
from tests.fuzz.awkward import pick
from tests.fuzz.harness import ROOT, Outcome, Torq
from tests.fuzz.tally import DEFECTS, Tally
from torq_byoc.npu_model.presets import preset, to_yaml

QUICK, FULL, FULL_MODELS = range(60), range(10_000, 10_500), range(10_000, 12_000)
MODELS = {
    **seeds(),
    "pooled": conv_model().SerializeToString(),
    "digits": (ROOT / "torq_byoc/data/digits.onnx").read_bytes(),
}
INPUT = {"float": (1, 3, 8, 8), "quantized": (1, 3, 5, 5), "branch": (2, 2), "pooled": (1, *SHAPE[1:])}
CALIBRATED = ("float", "pooled")
"""Float models that are also compiled for integers."""


@pytest.fixture(scope="module")
def torq(tmp_path_factory):
    server = Torq(tmp_path_factory.mktemp("fuzz") / "work")
    yield server
    server.close()


def data(name: str, samples: int | None = None) -> dict[str, np.ndarray]:
    shape = INPUT[name] if samples is None else (samples, *INPUT[name][1:])
    return {"x": np.random.default_rng(5).standard_normal(shape).astype(np.float32)}


@pytest.fixture(scope="module")
def containers(torq) -> dict[str, bytes]:
    made = {}
    for name in INPUT:
        given = {"m.onnx": MODELS[name], "c.npz": npz_mutants.npz(data(name, samples=4))}
        calibration = ["--calib", "c.npz"] if name == "pooled" else []
        outcome = torq.run(["compile", "m.onnx", "-o", "m.torq", *calibration], given)
        assert (outcome.code, outcome.left) == (0, ("m.torq",)), outcome.stderr
        made[name] = (torq.folder / "m.torq").read_bytes()
    return made


def fuzz_models(torq: Torq, numbers: range) -> None:
    tally = Tally()
    for seed in numbers:
        rng = np.random.default_rng(seed)
        name = list(MODELS)[seed % len(MODELS)]
        given = {"m.onnx": onnx_mutants.mutant(MODELS[name], rng)}
        options = [["--json"], []][int(rng.integers(4) == 0)]
        if name in CALIBRATED and rng.integers(2):
            given["c.npz"] = npz_mutants.npz(data(name, samples=4))
            options += ["--calib", "c.npz", "--precision", pick(rng, ("int8", "int16"))]
        outcome = torq.run(["compile", "m.onnx", "-o", "m.torq", *options], given)
        tally.add(seed, name, outcome, DEFECTS)
        if outcome.code == 0 and outcome.facts:
            tally.add(seed, f"run of {name}", _run_compiled(torq, outcome), DEFECTS)
    tally.judge()


def _run_compiled(torq: Torq, compiled: Outcome) -> Outcome:
    """What was compiled from a damaged model runs like any other."""
    rng = np.random.default_rng(0)
    feeds = {
        spec["name"]: rng.integers(0, 2, spec["shape"]).astype(spec["dtype"])
        if np.dtype(spec["dtype"]).kind in "biu"
        else rng.normal(size=spec["shape"]).astype(spec["dtype"])
        for spec in compiled.facts["inputs"]
    }
    given = {"m.torq": (torq.folder / "m.torq").read_bytes(), "x.npz": npz_mutants.npz(feeds)}
    return torq.run(["run", "m.torq", "--input", "x.npz", "--output", "y.npz", "--json"], given)


def fuzz_containers(torq: Torq, containers: dict[str, bytes], numbers: range) -> None:
    tally = Tally()
    for seed in numbers:
        rng = np.random.default_rng(seed)
        name = list(containers)[seed % len(containers)]
        given = {"m.torq": container_mutants.mutant(containers[name], rng), "x.npz": npz_mutants.npz(data(name))}
        commands = (
            ["run", "m.torq", "--input", "x.npz", "--output", "y.npz", "--trace", "t.json"],
            ["inspect", "m.torq", "--memory", "--disassemble", "--lines", "0"],
        )
        command = [*commands[seed // len(containers) % 2], *[["--json"], []][int(rng.integers(2))]]
        tally.add(seed, name, torq.run(command, given))
    tally.judge()


def fuzz_hardware(torq: Torq, numbers: range) -> None:
    tally = Tally()
    text = to_yaml(preset("lram64"))
    for seed in numbers:
        given = {"m.onnx": MODELS[("quantized", "float")[seed % 2]]}
        given["hw.yaml"] = yaml_mutants.mutant(text, np.random.default_rng(seed))
        tally.add(seed, "hardware", torq.run(["compile", "m.onnx", "-o", "m.torq", "--hw", "hw.yaml"], given))
    tally.judge()


def fuzz_data(torq: Torq, containers: dict[str, bytes], numbers: range) -> None:
    tally = Tally()
    for seed in numbers:
        rng = np.random.default_rng(seed)
        name = list(INPUT)[seed % len(INPUT)]
        if seed % 2:
            given = {"m.onnx": MODELS["float"], "c.npz": npz_mutants.mutant(data("float", samples=4), rng)}
            command = ["compile", "m.onnx", "-o", "m.torq", "--calib", "c.npz", "--precision", "int8"]
        else:
            given = {"m.torq": containers[name], "x.npz": npz_mutants.mutant(data(name), rng)}
            command = ["run", "m.torq", "--input", "x.npz", "--output", "y.npz"]
        tally.add(seed, name, torq.run(command, given))
    tally.judge()


def test_damaged_models(torq):
    fuzz_models(torq, QUICK)


def test_damaged_containers(torq, containers):
    fuzz_containers(torq, containers, QUICK)


def test_damaged_hardware_descriptions(torq):
    fuzz_hardware(torq, QUICK)


def test_damaged_data(torq, containers):
    fuzz_data(torq, containers, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_damaged_models(torq, part):
    fuzz_models(torq, FULL_MODELS[part * 100 : part * 100 + 100])


@pytest.mark.slow
def test_five_hundred_damaged_containers(torq, containers):
    fuzz_containers(torq, containers, FULL)


@pytest.mark.slow
def test_five_hundred_damaged_hardware_descriptions(torq):
    fuzz_hardware(torq, FULL)


@pytest.mark.slow
def test_five_hundred_damaged_data_files(torq, containers):
    fuzz_data(torq, containers, FULL)


def test_the_harness_sees_what_it_must_not_miss(torq):
    """A crash, a hang, a traceback and a file left behind are all told apart from a good end."""
    good = torq.run(["inspect", "none.torq"])
    assert good.fault() == "" and good.code == 2
    for broken, word in (
        (Outcome(None, 11, False, "", "", ()), "signal 11"),
        (Outcome(None, 24, True, "", "", ()), "hangs"),
        (Outcome(2, 0, False, "", "error: x\nTraceback", ()), "internal"),
        (Outcome(2, 0, False, "", "error: internal error: KeyError", ()), "internal"),
        (Outcome(2, 0, False, "", "error: x\nerror: y", ()), "2 errors"),
        (Outcome(0, 0, False, "", "a.py:1: RuntimeWarning: overflow", ()), "warning"),
        (Outcome(0, 0, False, "", "error: x", ()), "1 errors"),
        (Outcome(2, 0, False, "", "", ()), "0 errors"),
        (Outcome(2, 0, False, "", "error: x", ("m.torq",)), "leaves m.torq"),
        (Outcome(2, 0, False, '{"error": "InternalError", "what": "x"}', "", ()), "InternalError"),
        (Outcome(0, 0, False, '{"error": "ShapeError", "what": "x"}', "", ()), "1 errors"),
        (Outcome(2, 0, False, '{"error": "Sha', "", ()), "0 errors"),
    ):
        assert word in broken.fault()
    assert Path(torq.folder).exists()
