"""What precision costs: cycles and bytes of every operator in some forms of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx


@dataclass(frozen=True)
class Cost:
    """Of one operator: cycles of the machine, and bytes of what it makes and of its constants."""

    cycles: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cycles + other.cycles, self.bytes + other.bytes)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cycles - other.cycles, self.bytes - other.bytes)


Price = Callable[[onnx.ModelProto], Mapping[str, Cost]]
"""Costs of a quantized model by name of its ONNX nodes; of nodes that run together, one has the costs of all."""


def total(costs: Mapping[str, Cost]) -> Cost:
    """Of a whole model."""
    return sum(costs.values(), Cost())
