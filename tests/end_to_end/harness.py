"""Compile a model and hold every stage against independent truths: the graph-level reference and onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
import tvm
import tvm_ffi

import torq_byoc
from torq_byoc import host_module
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.frontend import prepare, to_relax
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.relay_patterns import lower_partitions, partition
from torq_byoc.schedules.record import DecisionRecord

Arrays = dict[str, np.ndarray]
_REFERENCE_CALL = "torq_tests.reference"
_ACTIVE: list[Reference] = []


@dataclass
class Reference:
    """A partitioned model whose NPU parts run as operator graphs in the machine's arithmetic.

    ``calls`` records, for every partition that ran, its symbol, its inputs and all its tensors.
    """

    module: tvm.IRModule
    graphs: dict[str, OpGraph]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    calls: list[tuple[str, Arrays, Arrays]] = field(default_factory=list)

    @classmethod
    def of(cls, model: onnx.ModelProto, precision: str, config: NpuConfig) -> Reference:
        """Of a prepared model; ``precision`` is "quantized" or "bf16"."""
        parted = partition(to_relax(model), precision, config).module
        graphs = lower_partitions(host_module.npu_functions(parted), config)
        names = tuple(value.name for value in model.graph.output)
        return cls(parted, graphs, names, tuple(value.name for value in model.graph.input))

    def run(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by name."""
        self.calls.clear()
        arguments = [feeds[name] for name in self.inputs]
        if host_module.is_direct(self.module):
            (symbol,) = self.graphs
            results = self._evaluate(symbol, arguments)
        else:
            _ACTIVE.append(self)
            try:
                results = self._executable(arguments)
            finally:
                _ACTIVE.pop()
        return dict(zip(self.outputs, results, strict=True))

    @cached_property
    def _executable(self) -> host_module.HostExecutable:
        tvm_ffi.register_global_func(_REFERENCE_CALL, _call_reference, override=True)
        symbols = {symbol: symbol.encode() for symbol in self.graphs}
        name, host_module.RUN_FUNCTION = host_module.RUN_FUNCTION, _REFERENCE_CALL
        try:
            return host_module.build_host(host_module.with_runtime_calls(self.module, symbols))
        finally:
            host_module.RUN_FUNCTION = name

    def _evaluate(self, symbol: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        graph = self.graphs[symbol]
        inputs = {
            name: np.array(array).reshape(graph.tensors[name].shape).astype(graph.tensors[name].dtype.numpy, copy=False)
            for name, array in zip(graph.inputs, arrays, strict=True)
        }
        values = evaluate(graph, inputs)
        self.calls.append((symbol, inputs, values))
        return [_as_host(values[name], graph.tensors[name].dtype) for name in graph.outputs]


def _call_reference(symbol: tvm.runtime.Tensor, inputs: int, *tensors: tvm.runtime.Tensor) -> None:
    arrays = [np.from_dlpack(tensor) for tensor in tensors]
    results = _ACTIVE[-1]._evaluate(np.from_dlpack(symbol).tobytes().decode(), arrays[:inputs])
    for result, target in zip(results, arrays[inputs:], strict=True):
        np.copyto(target, result.reshape(target.shape))


def _as_host(value: np.ndarray, dtype: DType) -> np.ndarray:
    return value.astype(np.float32) if dtype is DType.BF16 else value


@dataclass
class Outcome:
    """What a checked compilation gave."""

    compiled: CompiledModel
    reference: Reference
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
        precision="bf16" if precision == "bf16" else "auto",
        schedule=schedule,
        disable_passes=disable_passes,
    )
    compiled_at = time.perf_counter()
    outputs = compiled.run(feeds)
    finished = time.perf_counter()
    reference = Reference.of(prepare(model), precision, config)
    expected = reference.run(feeds)
    assert [p.facts.symbol for p in compiled.partitions] == sorted(reference.graphs)
    check_partitions(compiled, reference)
    if precision != "bf16":
        for name, value in expected.items():
            assert np.array_equal(outputs[name], value.reshape(outputs[name].shape)), f"output {name} differs"
    return Outcome(compiled, reference, outputs, compiled_at - started, finished - compiled_at)


def check_partitions(compiled: CompiledModel, reference: Reference) -> None:
    """Every program, on the inputs that the reference had, against the reference's results."""
    programs = {partition_.facts.symbol: partition_.program for partition_ in compiled.partitions}
    for symbol, inputs, values in reference.calls:
        found = Simulator(programs[symbol]).run(inputs)
        for name in reference.graphs[symbol].outputs:
            _check_equal(f"{symbol}, {name}", found[name].reshape(values[name].shape), values[name])


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
