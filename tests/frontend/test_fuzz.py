"""Damaged model files end in a TorqError, never in a traceback, a signal or a hang."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.frontend.fuzz_seeds import seeds
from tests.frontend.mutants import mutate, survives
from tests.frontend.onnx_tools import SHARED_MODELS

SEEDS = seeds()


def test_the_seeds_themselves_are_good(tmp_path):
    assert {survives(data, tmp_path) for data in SEEDS.values()} == {"ok"}


@pytest.mark.parametrize("name", SEEDS)
def test_two_hundred_mutants(tmp_path, name):
    outcomes = [survives(mutate(SEEDS[name], np.random.default_rng(seed)), tmp_path) for seed in range(200)]
    assert len(outcomes) == 200
    assert "ModelFileError" in outcomes  # the damage does reach the checks


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SEEDS, "mtcnn_pnet.onnx", "qdq/resnet8_cifar_qdq_s8s8_pc.onnx"])
def test_two_thousand_mutants_in_processes_of_their_own(tmp_path, name):
    data = SEEDS.get(name)
    if data is None and not (SHARED_MODELS / name).exists():
        pytest.skip(f"{name} is not in TORQ_TEST_MODELS")
    seed_file = tmp_path / "seed"
    seed_file.write_bytes((SHARED_MODELS / name).read_bytes() if data is None else data)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    for first in range(0, 2000, 250):
        command = [sys.executable, "-m", "tests.frontend.mutants", str(seed_file), str(tmp_path), str(first), "250"]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"after seed {done.stdout.split()[-1:]}: {done.stderr[-2000:]}"
