"""A partitioned model whose NPU parts run as operator graphs, in the machine's arithmetic on whole tensors.

Everything beside the partitions runs on the CPU as it does in the compiled model, so the results of the two are equal
to the last bit (bf16: to one unit in the last place) or one of them is wrong.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
import tvm
import tvm_ffi

from torq_byoc.compilation.options import arithmetic_of
from torq_byoc.frontend import to_relax
from torq_byoc.host_module import HostExecutable, build_host, is_direct, npu_functions, with_runtime_calls
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.relay_patterns import lower_partitions, partition

RUN_REFERENCE = "torq.accuracy.run_reference"


@dataclass(frozen=True)
class Call:
    """One call of a partition: its symbol, its inputs, and all tensors of its graph by name."""

    symbol: str
    inputs: Mapping[str, np.ndarray]
    tensors: Mapping[str, np.ndarray]


class IntegerReference:
    """Runs a partitioned model many times.

    Args:
        module: with its partitions.
        graphs: operator graph of every partition by symbol.
        inputs, outputs: names of the model's, in the order of ``main``'s parameters and results.
    """

    def __init__(
        self, module: tvm.IRModule, graphs: Mapping[str, OpGraph], inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        self.module, self.graphs = module, dict(graphs)
        self.inputs, self.outputs = inputs, outputs
        self.calls: list[Call] = []
        """Of the last run, in order."""
        self._number = next(_NUMBERS)
        _ALIVE[self._number] = self

    @classmethod
    def of(cls, model: onnx.ModelProto, precision: str, config: NpuConfig) -> IntegerReference:
        """Of a prepared model, quantized already unless the precision is "bf16"."""
        parted = partition(to_relax(model), arithmetic_of(precision), config).module
        graphs = lower_partitions(npu_functions(parted), config)
        return cls.over(model, parted, graphs)

    @classmethod
    def over(cls, model: onnx.ModelProto, module: tvm.IRModule, graphs: Mapping[str, OpGraph]) -> IntegerReference:
        """Of a model that is partitioned and lowered."""
        inputs, outputs = (tuple(value.name for value in part) for part in (model.graph.input, model.graph.output))
        return cls(module, graphs, inputs, outputs)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name."""
        self.calls.clear()
        arguments = [feeds[name] for name in self.inputs]
        if is_direct(self.module):
            (symbol,) = self.graphs
            results = self._evaluate(symbol, arguments)
        else:
            results = self._executable(arguments)
        return dict(zip(self.outputs, results, strict=True))

    @cached_property
    def _executable(self) -> HostExecutable:
        tvm_ffi.register_global_func(RUN_REFERENCE, _run_reference, override=True)
        symbols = {symbol: f"{self._number} {symbol}".encode() for symbol in self.graphs}
        return build_host(with_runtime_calls(self.module, symbols, RUN_REFERENCE))

    def _evaluate(self, symbol: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        graph = self.graphs[symbol]
        inputs = {
            name: np.array(array).reshape(graph.tensors[name].shape).astype(graph.tensors[name].dtype.numpy, copy=False)
            for name, array in zip(graph.inputs, arrays, strict=True)
        }
        values = evaluate(graph, inputs)
        self.calls.append(Call(symbol, inputs, values))
        return [_as_host(values[name], graph.tensors[name].dtype) for name in graph.outputs]


_NUMBERS = itertools.count()
_ALIVE: weakref.WeakValueDictionary[int, IntegerReference] = weakref.WeakValueDictionary()
"""Which reference a call out of a host module belongs to."""


def _run_reference(address: tvm.runtime.Tensor, inputs: int, *tensors: tvm.runtime.Tensor) -> None:
    """What a host module calls in place of the runtime: ``address`` is the reference's number and the symbol."""
    number, _, symbol = np.from_dlpack(address).tobytes().decode().partition(" ")
    arrays = [np.from_dlpack(tensor) for tensor in tensors]
    results = _ALIVE[int(number)]._evaluate(symbol, arrays[:inputs])
    for result, target in zip(results, arrays[inputs:], strict=True):
        np.copyto(target, result.reshape(target.shape))


def _as_host(value: np.ndarray, dtype: DType) -> np.ndarray:
    return value.astype(np.float32) if dtype is DType.BF16 else value
