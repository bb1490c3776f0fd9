"""Whole networks: exact against the integer reference, close to float layer by layer and end to end.

``TORQ_TEST_MODELS`` names the folder of model files; networks whose file is absent are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from tests.end_to_end import light_models
from tests.end_to_end.harness import compile_and_compare
from tests.end_to_end.measure import (
    MAX_LAYER_LSB,
    MAX_LAYER_MEAN_LSB,
    MAX_MEAN_LSB,
    MIN_LAYER_COSINE,
    MIN_MAC_FRACTION,
    MIN_NETWORK_COSINE,
    Row,
    measure_bf16,
    measure_quantized,
)
from tests.end_to_end.networks import FLOAT, QUANTIZED, Network
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize.evaluation.distance import cosine

CONFIG = NpuConfig()


def _cases(networks: Iterable[Network]) -> list[object]:
    return [
        pytest.param(network, id=network.name, marks=[pytest.mark.slow] if network.slow else []) for network in networks
    ]


def _available(network: Network) -> Network:
    if not network.available:
        pytest.skip(f"{network.path} is absent; set TORQ_TEST_MODELS")
    return network


def _check_coverage(row: Row) -> None:
    print(row)
    assert row.mac_fraction >= MIN_MAC_FRACTION, row
    assert 0 < row.efficiency <= 1, row


@pytest.mark.parametrize("network", _cases((*QUANTIZED, *FLOAT)))
def test_int8(network: Network) -> None:
    """Bit for bit the reference; every layer within 1 LSB of float semantics; end to end within a quarter, or
    within onnxruntime's own distance for a network that amplifies any rounding."""
    row = measure_quantized(_available(network), CONFIG)
    _check_coverage(row)
    assert row.worst_layer <= MAX_LAYER_LSB, row
    assert row.layer_mean <= MAX_LAYER_MEAN_LSB, row
    assert row.truth_layer <= MAX_LAYER_LSB, row
    if network.amplifies:
        assert row.truth_whole > MAX_MEAN_LSB, "the network needs no limit of its own"
    assert row.whole <= (row.truth_whole if network.amplifies else MAX_MEAN_LSB), row


@pytest.mark.parametrize("network", _cases(FLOAT))
def test_bf16(network: Network) -> None:
    """Within one ULP of the reference; every layer and the outputs point where float points."""
    row = measure_bf16(_available(network), CONFIG)
    _check_coverage(row)
    assert row.worst_layer >= MIN_LAYER_COSINE, row
    assert row.whole >= MIN_NETWORK_COSINE, row


@pytest.mark.parametrize("name", ["squeezenet", pytest.param("shufflenet", marks=pytest.mark.slow)])
def test_recorded_output(name: str) -> None:
    """The package's own weights and recorded output."""
    model = light_models.original(name)
    outcome = compile_and_compare(model, light_models.ramp(model), CONFIG, precision="bf16")
    (found,) = outcome.outputs.values()
    expected = light_models.recorded(name)
    assert cosine(found, expected) >= MIN_NETWORK_COSINE
    assert np.abs(found - expected).max() <= 0.01 * np.abs(expected).max()
