"""Tables: what they say of the samples, and that nothing but the samples decides it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from torq_byoc.errors import CalibrationError
from torq_byoc.frontend import prepare
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.calibration_table import CalibrationTable, TensorCalibration
from torq_byoc.quantize.observers import CALIBRATORS, Range

TEXT = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1, 64] x) => (float[1, 64] y) <float two = {2.0}> { y = Mul(x, two) }"""


def table_of(rows: Sequence[Sequence[float]] | np.ndarray, methods: Sequence[str] = ("minmax",)) -> CalibrationTable:
    model = prepare(onnx.parser.parse_model(TEXT))
    feeds = [{"x": np.resize(np.array(row, np.float32), (1, 64))} for row in rows]
    return calibrate(model, feeds, ["y", "x"], methods)


def test_ranges_are_those_of_all_samples_and_tensors_are_in_order() -> None:
    table = table_of([[0.5, -1.0], [3.0, 2.0]])
    assert list(table.tensors) == ["x", "y"]
    assert table.ranges("minmax") == {"x": Range(-1.0, 3.0), "y": Range(-2.0, 6.0)}
    assert (table.samples, table.held_out) == (2, 0)


def test_growth_is_seen_after_a_quarter_and_half_of_the_samples() -> None:
    rows = [[0.0, 1.0], [-1.0, 2.0], [0.0, 0.5], [0.0, 3.0], [0.0], [0.0], [-2.0, 5.0], [0.0]]
    found = table_of(rows).tensors["x"]
    assert found.growth == ((-1.0, 2.0), (-1.0, 3.0), (-2.0, 5.0))
    assert found.moved == pytest.approx((1.0 + 2.0) / 7.0)
    assert not found.settled


def test_growth_of_a_range_far_from_zero_counts_against_the_way_to_zero() -> None:
    found = table_of([[100.0, 101.0], [100.0, 102.0]]).tensors["x"]
    assert found.moved == pytest.approx(1.0 / 102.0)
    assert found.settled


@pytest.mark.parametrize(("samples", "held_out"), [(1, 0), (3, 0), (4, 1), (7, 1), (8, 2)])
def test_the_last_quarter_is_held_out(samples: int, held_out: int) -> None:
    table = table_of([[0.0, 1.0]] * samples)
    assert table.held_out == held_out
    assert table.tensors["x"].outside == (None if held_out == 0 else 0.0)
    assert len(list(table.remarks())) == (held_out == 0)


def test_held_out_values_outside_are_counted() -> None:
    rows = [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.5, 1.5, -0.5, 0.0]]
    table = table_of(rows)
    assert table.tensors["x"].outside == 0.5
    (doubt,) = table.doubts()
    assert doubt.startswith("of 2 of 2 tensors more than 1% of the values in the last 1 sample")
    assert "y, 50.00%" in doubt


def test_few_values_may_lie_outside_by_chance() -> None:
    def strays(values: int) -> bool:
        return TensorCalibration(values, 0.0, {}, ((0.0, 1.0),) * 3, 0.05).strays

    assert not strays(values=100)
    assert strays(values=1000)


def test_json_and_back() -> None:
    rng = np.random.default_rng(1)
    table = table_of(rng.standard_t(3, (8, 64)), sorted(CALIBRATORS))
    again = CalibrationTable.loads(table.dumps())
    assert again == table
    assert again.dumps() == table.dumps()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"samples": 1, "held_out": 0, "tensors": {"x": 3}}', b"[" * 100_000])
def test_what_is_no_table_is_refused(text: bytes) -> None:
    with pytest.raises(CalibrationError, match="calibration table cannot be read"):
        CalibrationTable.loads(text)


def test_infinite_results_are_refused_with_the_tensor() -> None:
    with pytest.raises(CalibrationError, match="tensor y becomes NaN or infinite") as refusal:
        table_of([[1.0], [3e38]])
    assert refusal.value.where == "y"


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(CalibrationError, match="no calibration method 'entrpy'") as refusal:
        table_of([[1.0]], ["entrpy"])
    assert "entropy" in refusal.value.remedy


def test_the_expected_quality_follows_from_the_range() -> None:
    rng = np.random.default_rng(1)
    methods = table_of(rng.uniform(-1, 1, (8, 64)), ["minmax", "mse"]).tensors["x"].methods
    # uniform in -1 .. 1: variance 1/3; steps of 2/255
    assert methods["minmax"].sqnr == pytest.approx(10 * np.log10((1 / 3) / ((2 / 255) ** 2 / 12)), abs=0.3)
    assert methods["mse"].sqnr >= methods["minmax"].sqnr


_SCRIPT = """
import sys
import numpy as np
from tests.quantize.test_choose_ranges import heavy_tail, samples
from torq_byoc.quantize import quantization_of
found = quantization_of(heavy_tail(), samples(16))
sys.stdout.buffer.write(found.table.dumps() + found.model.SerializeToString(deterministic=True))
"""


def test_threads_and_hash_order_change_no_bit() -> None:
    root = Path(__file__).parents[2]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={
                **os.environ,
                **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads),
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(root),
            },
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout
        for threads, seed in (("1", "0"), ("4", "7"))
    ]
    assert len(outputs[0]) > 1000
    assert outputs[0] == outputs[1]
