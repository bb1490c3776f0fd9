"""The table of networks: its figures agree with the compiled model's, and memory is judged by its lifetimes."""

import pytest

from benchmarks.networks import COLUMNS, lram_gap, measure, row
from benchmarks.zoo import job, networks
from torq_byoc.codegen.allocation import Request
from torq_byoc.npu_model.config import NpuConfig


def test_a_program_that_fills_the_memory_leaves_the_gap_between_live_and_usable() -> None:
    config = NpuConfig()
    live = config.lram_usable - 2048
    assert lram_gap((Request(live, 0, 0),), config) == pytest.approx(2048 / live)


def test_a_small_program_is_judged_by_how_it_packs() -> None:
    assert lram_gap((Request(512, 0, 1), Request(256, 1, 2), Request(512, 2, 3)), NpuConfig()) == 0.0
    assert lram_gap((), NpuConfig()) == 0.0


def test_a_row_of_a_measured_network() -> None:
    (network,) = networks(["dscnn_kws_int8"])
    if not network.available:
        pytest.skip(f"{network.path} is not here")
    result = measure(job(network, "int8"), baseline=False)
    cells = dict(zip(COLUMNS, row(result), strict=True))
    dma, least = result["dma"], result["compulsory_bytes"]
    assert cells["x compulsory"] == f"{(dma['in_bytes'] + dma['out_bytes']) / (least['in'] + least['out']):.2f}"
    assert least["in"] > 20_000 and least["out"] >= 12
    assert dma["in_bytes"] >= least["in"] and dma["out_bytes"] >= least["out"]
    assert cells["cycles"] == f"{result['cycles']['total']:,}"
    assert float(cells["efficiency"]) <= 1
    assert cells["TVM CPU s"] == "-"
