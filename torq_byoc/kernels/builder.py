"""Builds an ``OpGraph`` node by node; names are made unique and readable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph, Rescale, TensorInfo
from torq_byoc.npu_model.dtypes import DType


class GraphBuilder:
    """Collects tensors, constants and nodes; ``finish`` returns the frozen graph."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tensors: dict[str, TensorInfo] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._nodes: list[Node] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []

    def info(self, tensor: str) -> TensorInfo:
        """Shape, type and quantization of a tensor of the graph."""
        return self._tensors[tensor]

    def value(self, tensor: str) -> np.ndarray | None:
        """The value of a constant, or None for a tensor that is computed."""
        return self._constants.get(tensor)

    def input(
        self, name: str, shape: Sequence[int], dtype: DType, scale: float | None = None, zero_point: int = 0
    ) -> str:
        """Declare a graph input; returns its (unique) name."""
        name = self._declare(name, shape, dtype, scale, zero_point)
        self._inputs.append(name)
        return name

    def constant(self, value: np.ndarray, hint: str = "const", scale: float | None = None, zero_point: int = 0) -> str:
        """Add a constant tensor; its element type is the array's."""
        name = self._declare(hint, value.shape, DType.of(value.dtype), scale, zero_point)
        self._constants[name] = value
        return name

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        dtype: DType,
        *,
        attrs: Mapping[str, Any] | None = None,
        rescale: Rescale | None = None,
        scale: float | None = None,
        zero_point: int = 0,
        origin: str = "",
        hint: str = "",
    ) -> str:
        """Append a node and return the name of its output tensor."""
        output = self._declare(hint or origin or op, shape, dtype, scale, zero_point)
        self._nodes.append(Node(output, op, tuple(inputs), output, dict(attrs or {}), rescale, str(origin)))
        return output

    def output(self, tensor: str) -> None:
        """Declare a tensor to be a graph output."""
        self._outputs.append(tensor)

    def finish(self) -> OpGraph:
        """The graph."""
        return OpGraph(
            self._name,
            tuple(self._inputs),
            tuple(self._outputs),
            dict(self._tensors),
            dict(self._constants),
            tuple(self._nodes),
        )

    def _declare(self, name: str, shape: Sequence[int], dtype: DType, scale: float | None, zero_point: int) -> str:
        name = str(name)
        unique, suffix = name, 1
        while unique in self._tensors:
            unique = f"{name}_{suffix}"
            suffix += 1
        shape = tuple(int(extent) for extent in shape)
        self._tensors[unique] = TensorInfo(unique, shape, dtype, scale, int(zero_point))
        return unique
