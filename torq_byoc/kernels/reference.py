"""The integer reference of a whole operator graph: every kernel's own arithmetic on whole tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import torq_byoc.kernels  # noqa: F401  (registers all kernels)
from torq_byoc.errors import CalibrationError
from torq_byoc.kernels.graph import OpGraph, TensorInfo
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.blas import single_threaded


def evaluate(graph: OpGraph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a graph in the machine's arithmetic.

    Args:
        graph: operators in topological order.
        inputs: an array for every graph input, of its shape and element type.

    Returns:
        Every tensor of the graph by name: inputs, constants and results.

    Raises:
        CalibrationError: an input is missing, or has another shape or type.
    """
    values = dict(graph.constants)
    for name in graph.inputs:
        values[name] = _checked(graph.tensors[name], inputs.get(name))
    with single_threaded():
        for node in graph.nodes:
            operands = [values[name] for name in node.inputs]
            values[node.output] = kernel_for(node.op).reference(graph, node, operands)
    return values


def _checked(info: TensorInfo, value: np.ndarray | None) -> np.ndarray:
    if value is None:
        raise CalibrationError(f"no value for input {info.name}", where=info.name, remedy="give every graph input")
    if value.shape != info.shape or value.dtype != info.dtype.numpy:
        raise CalibrationError(
            f"input {info.name} is {value.dtype}{list(value.shape)}",
            where=info.name,
            why=f"the graph declares {info.dtype.numpy}{list(info.shape)}",
            remedy="convert the array before evaluating",
        )
    return value
