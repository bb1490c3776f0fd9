"""The scripts under examples/ do what the documentation says of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_training_gives_the_embedded_model_again(tmp_path):
    pytest.importorskip("sklearn")
    subprocess.run([sys.executable, EXAMPLES / "train_digits.py", tmp_path], check=True, capture_output=True)
    embedded = Path(__file__).parents[1] / "torq_byoc" / "data"
    for name in ("digits_test.npz", "digits_calibration.npz"):
        with np.load(tmp_path / name) as ours, np.load(embedded / name) as theirs:
            assert all(np.array_equal(ours[key], theirs[key]) for key in theirs.files)
    with np.load(tmp_path / "digits_test.npz") as test:
        images, labels = test["image"], test["labels"]
    logits = ReferenceEvaluator(onnx.load(tmp_path / "digits.onnx")).run(None, {"image": images})[0]
    assert np.mean(logits.argmax(axis=1) == labels) >= 0.98


def test_gradients_of_the_training_loop():
    """Central differences of the loss, in float64."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from digits_network import initial, loss_and_gradients
    finally:
        sys.path.pop(0)
    rng = np.random.default_rng(0)
    parameters = {name: value.astype(np.float64) for name, value in initial(3).items()}
    images, labels = rng.normal(size=(5, 1, 8, 8)), rng.integers(0, 10, 5)
    _, gradients = loss_and_gradients(parameters, images, labels)
    for name, value in parameters.items():
        for _ in range(4):
            index = tuple(rng.integers(0, extent) for extent in value.shape)
            kept, step = value[index], 1e-6
            value[index] = kept + step
            above = loss_and_gradients(parameters, images, labels)[0]
            value[index] = kept - step
            below = loss_and_gradients(parameters, images, labels)[0]
            value[index] = kept
            assert (above - below) / (2 * step) == pytest.approx(gradients[name][index], rel=1e-4, abs=1e-8), name
