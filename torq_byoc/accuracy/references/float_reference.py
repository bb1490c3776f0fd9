"""The float model as the user gave it: run by onnxruntime with its optimisations off, else by the evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import onnx

from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.evaluation.float64 import evaluator_of

ONNXRUNTIME = "onnxruntime, optimisations off"
EVALUATOR = "the evaluator of the onnx package"


class FloatReference(Protocol):
    """Runs one model.

    Attributes:
        name: who computes, for reports.
    """

    @property
    def name(self) -> str:
        """Who computes, for reports."""

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name."""

    def tensors(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run and every tensor that a node makes, by name."""


def float_reference(model: onnx.ModelProto) -> FloatReference:
    """The best reference that this machine has for a model: onnxruntime where it is installed and takes the model.

    Optimisations are off because they move the last bits of what they fuse.
    """
    try:
        return OnnxRuntime(model)
    except Exception:  # noqa: BLE001 - it is optional, and has no base class for what it refuses
        return PythonReference(model)


class PythonReference:
    """The evaluator of the onnx package (see ``quantize.evaluation``); float64 for quantized models."""

    name = EVALUATOR

    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = evaluator_of(model)

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name."""
        return self._evaluator.outputs(feeds)

    def tensors(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Every tensor of one run by name."""
        return self._evaluator.tensors(feeds)


class OnnxRuntime:
    """onnxruntime on one thread of the CPU, as the model stands.

    Raises:
        Exception: onnxruntime is not installed, or refuses the model.
    """

    name = ONNXRUNTIME

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._outputs = [value.name for value in model.graph.output]
        self._whole: Any = _session(model)
        self._watched: Any = None

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name."""
        return dict(zip(self._outputs, self._whole.run(self._outputs, dict(feeds)), strict=True))

    def tensors(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Every tensor of one run by name."""
        if self._watched is None:
            self._watched = _session(_with_all_results(self._model))
        names = [output.name for output in self._watched.get_outputs()]
        return dict(zip(names, self._watched.run(names, dict(feeds)), strict=True))


def _session(model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _with_all_results(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the results of all its nodes as outputs."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    present = {value.name for value in model.graph.output}
    results = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in results if name not in present)
    return watched
