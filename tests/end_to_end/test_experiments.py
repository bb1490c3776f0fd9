"""The three headline operators: how fast they may be at most, what crosses the memory bus, and that they are right."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

from benchmarks.experiments import EXPERIMENTS, Experiment, conv1d_model, figures, max_pool_model
from tests.end_to_end.harness import Outcome, compile_and_compare, ulps
from tests.relay_patterns.infra import onnxruntime_outputs
from torq_byoc.npu_model.config import NpuConfig

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
MOST_US = {
    ("erf", "reference"): 50,
    ("erf", "shared"): 75,
    ("max_pool", "reference"): 38,
    ("max_pool", "shared"): 66,
    ("conv1d", "reference"): 270,
    ("conv1d", "shared"): 290,
}
_outcomes: dict[str, Outcome] = {}


def outcome(experiment: Experiment) -> Outcome:
    """Compiled and simulated once, every partition compared with its whole-tensor reference."""
    if experiment.name not in _outcomes:
        precision = "bf16" if experiment.precision == "bf16" else "quantized"
        _outcomes[experiment.name] = compile_and_compare(
            experiment.build(), experiment.feeds(), NpuConfig(), precision=precision
        )
    return _outcomes[experiment.name]


@pytest.mark.parametrize(("name", "profile"), MOST_US)
def test_is_fast(name: str, profile: str) -> None:
    found = figures(BY_NAME[name], outcome(BY_NAME[name]).compiled, profile)
    assert found["us"] <= MOST_US[name, profile]
    assert found["cpu_ops"] == []
    assert found["bound_us"] <= found["us"]


@pytest.mark.parametrize("name", ["erf", "max_pool"])
def test_every_byte_crosses_once(name: str) -> None:
    compiled = outcome(BY_NAME[name]).compiled
    (program,) = (partition.program for partition in compiled.partitions)
    dma = figures(BY_NAME[name], compiled, "reference")["dma"]
    given, made = sum(b.nbytes for b in program.inputs), sum(b.nbytes for b in program.outputs)
    assert dma["out_bytes"] == made
    assert dma["activations"] == given + made


def test_conv1d_loads_filters_once_and_only_overlaps_of_frames_twice() -> None:
    dma = figures(BY_NAME["conv1d"], outcome(BY_NAME["conv1d"]).compiled, "reference")["dma"]
    assert dma["out_bytes"] == 288 * 1249 * 2
    assert dma["weights"] == 288 * (127 * 2 + 4)
    overlap, tiles = 64 * 2, 40
    assert dma["activations"] - dma["out_bytes"] <= 80_000 * 2 + (tiles - 1) * overlap


def test_erf_of_every_bf16_number() -> None:
    """One unit in the last place, or 2**-9 near 1: the table's value and the product round once each."""
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32).reshape(1, 1024, 64)
    x = np.where(np.isfinite(x), x, 0.0)
    (found,) = outcome(BY_NAME["erf"]).compiled.run({"x": x}).values()
    exact = np.vectorize(math.erf)(x.astype(np.float64))
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126))) - 7)
    assert np.max(np.abs(found.astype(np.float64) - exact) - unit) <= 2.0**-9
    np.testing.assert_array_equal(np.sign(found[np.abs(x) > 2.0**-100]), np.sign(x[np.abs(x) > 2.0**-100]))


def test_max_pool_equals_onnxruntime_and_windows() -> None:
    experiment = BY_NAME["max_pool"]
    feeds = experiment.feeds()
    found = outcome(experiment).outputs["y"]
    np.testing.assert_array_equal(found, onnxruntime_outputs(experiment.build(), feeds)[0])
    bordered = np.pad(feeds["x"], ((0, 0), (2, 2), (2, 2), (0, 0)), constant_values=-128)
    taps = [bordered[:, i : i + 15, j : j + 20] for i, j in itertools.product(range(5), range(5))]
    np.testing.assert_array_equal(found, np.max(taps, axis=0))


def test_conv1d_equals_products_of_frames() -> None:
    experiment = BY_NAME["conv1d"]
    signal = experiment.feeds()["x"].astype(ml_dtypes.bfloat16).astype(np.float64).reshape(-1)
    (weights,) = (np.frombuffer(w.raw_data, np.float32).reshape(w.dims) for w in experiment.build().graph.initializer)
    filters = weights.astype(ml_dtypes.bfloat16).astype(np.float64)[:, 0]
    frames = np.lib.stride_tricks.sliding_window_view(signal, 127)[::64]
    exact = (filters @ frames.T)[None]
    found = outcome(experiment).outputs["y"]
    assert ulps(found.astype(ml_dtypes.bfloat16), exact.astype(ml_dtypes.bfloat16)).max() <= 1


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "pad"),
    [
        ((1, 7, 9, 5), 3, 1, 1),
        ((2, 6, 6, 33), 5, 1, 2),
        ((1, 8, 8, 16), 4, 1, 0),
        ((1, 9, 9, 16), 3, 2, 1),
    ],
)
def test_channel_last_pools_of_other_sizes(shape: tuple[int, ...], kernel: int, stride: int, pad: int) -> None:
    model = max_pool_model(shape, kernel, stride, pad)
    feeds = {"x": np.random.default_rng(1).integers(-128, 128, shape, dtype=np.int8)}
    found = compile_and_compare(model, feeds, NpuConfig())
    np.testing.assert_array_equal(found.outputs["y"], onnxruntime_outputs(model, feeds)[0])
    (graph,) = found.reference.graphs.values()
    assert ("transpose" in {node.op for node in graph.nodes}) is (stride > 1)


@pytest.mark.parametrize(
    ("samples", "filters", "kernel", "stride"), [(1000, 40, 25, 10), (515, 33, 16, 16), (300, 5, 9, 3)]
)
def test_framed_convolutions_of_other_sizes(samples: int, filters: int, kernel: int, stride: int) -> None:
    model = conv1d_model(samples, filters, kernel, stride)
    signal = np.random.default_rng(2).standard_normal((1, 1, samples)).astype(np.float32)
    compile_and_compare(model, {"x": signal}, NpuConfig(), precision="bf16")
