"""Compile a model and hold every stage against independent truths: the graph-level reference and onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

import torq_byoc
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.frontend import prepare
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.schedules.record import DecisionRecord


@dataclass
class Outcome:
    """What a checked compilation gave."""

    compiled: CompiledModel
    reference: IntegerReference
    outputs: Arrays
    compile_seconds: float
    run_seconds: float


def compile_and_compare(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    config: NpuConfig,
    *,
    precision: str = "quantized",
    disable_passes: Collection[str] = (),
    schedule: DecisionRecord | None = None,
) -> Outcome:
    """Compile (the compiler verifies), simulate, and compare with the reference: bits of integers, 1 ULP of bf16.

    The whole model is compared by its outputs, and every partition by its own, on the reference's inputs.
    """
    started = time.perf_counter()
    compiled = torq_byoc.compile(
        model,
        hw=config,
        precision="auto" if precision == "quantized" else precision,
        schedule=schedule,
        disable_passes=disable_passes,
    )
    compiled_at = time.perf_counter()
    outputs = compiled.run(feeds)
    finished = time.perf_counter()
    reference = IntegerReference.of(prepare(model), precision, config)
    expected = reference.run(feeds)
    assert [p.facts.symbol for p in compiled.partitions] == sorted(reference.graphs)
    check_partitions(compiled, reference)
    if precision != "bf16":
        for name, value in expected.items():
            assert np.array_equal(outputs[name], value.reshape(outputs[name].shape)), f"output {name} differs"
    return Outcome(compiled, reference, outputs, compiled_at - started, finished - compiled_at)


def check_partitions(compiled: CompiledModel, reference: IntegerReference) -> None:
    """Every program, on the inputs that the reference had, against the reference's results."""
    programs = {partition_.facts.symbol: partition_.program for partition_ in compiled.partitions}
    for call in reference.calls:
        found = Simulator(programs[call.symbol]).run(call.inputs)
        for name in reference.graphs[call.symbol].outputs:
            wanted = call.tensors[name]
            _check_equal(f"{call.symbol}, {name}", found[name].reshape(wanted.shape), wanted)


def _check_equal(where: str, found: np.ndarray, expected: np.ndarray) -> None:
    if expected.dtype.kind in "iub":
        wrong = int(np.count_nonzero(found != expected))
        assert wrong == 0, f"{where}: {wrong} of {expected.size} integers differ"
        return
    distance = ulps(found, expected)
    assert distance.max(initial=0) <= 1, f"{where}: {int(distance.max())} ULP at {int(distance.argmax())}"


def ulps(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance of bf16 numbers in units of the last place; 0 between two NaN."""
    a, b = (_ordered(value) for value in (found, expected))
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return np.where(both_nan, 0, np.abs(a - b))


def _ordered(value: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(value).view(np.int16).astype(np.int32)
    return np.where(bits < 0, -32768 - bits, bits)
