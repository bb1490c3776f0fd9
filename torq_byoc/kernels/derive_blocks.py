"""Descriptors of a block transposition: rows come in along the lanes, columns go out along the group.

A block of ``NpuConfig.block_bytes`` rows of as many bytes fills PRAM.  One cycle reads a few runs of the lanes, each
from an address of its own, and one cycle writes a few runs of the group (hardware doc 4.3).
"""

from __future__ import annotations

import math

from torq_byoc.kernels.derive import Derivation, register_dims
from torq_byoc.kernels.nest import Operand
from torq_byoc.npu_model.isa import Agent, DimKind, Ndl, NdlDim


class BlockDerivation(Derivation):
    """Derives the descriptors of a nest whose ALU carries blocks (``Op1.CARRY``)."""

    def _data(self, data: Operand) -> list[Ndl]:
        dims = self._moving_dims(data, frozenset())
        limits, bus = self.config.limits, self.config.data_vector
        dims += self._runs(data, (self._group, self.nest.weights), (self.lane, self.vector), limits.gather_groups, bus)
        return [
            Ndl(Agent.DEDR, data.base, data.dtype, tuple(dims)),
            Ndl(Agent.CEDW, 0, data.dtype, register_dims([dim for dim in dims if dim.kind is DimKind.H])),
            Ndl(Agent.CEDR, 0, data.dtype, self.walk),
        ]

    def _result(self) -> Ndl:
        result = self.nest.result
        return Ndl(Agent.DEQW, result.base, result.dtype, tuple(self._written(result)))

    def _drained(self) -> tuple[NdlDim, ...]:
        return register_dims(self._written(self.nest.result))

    def _written(self, result: Operand) -> list[NdlDim]:
        """How the writer, and ACT before it, walk the nest."""
        limits, bus = self.config.limits, self.config.result_bus
        members, lanes = (self._group, self.nest.weights), (self.lane, self.vector)
        return [*self._nest_dims(result), *self._runs(result, lanes, members, limits.scatter_addresses, bus)]

    @property
    def _group(self) -> str:
        assert self.group is not None, "a block has rows and columns"
        return self.group

    def _runs(
        self, operand: Operand, across: tuple[str, int], along: tuple[str, int], addresses: int, bus: int
    ) -> list[NdlDim]:
        """The dims inside a block: as many runs a cycle as bus and addresses allow.

        Args:
            across: the loop from run to run, and how many there are.
            along: the loop inside a run, and its elements.
            addresses: independent addresses of a cycle.
            bus: bytes of a cycle.
        """
        size = operand.dtype.size
        (outer, count), (inner, length) = across, along
        step = self._stride(operand, outer)
        at_once = max(1, min(addresses, bus // (length * size), count))
        low = [NdlDim(DimKind.L, self.index[outer], at_once, step)] if at_once > 1 else []
        return [
            NdlDim(DimKind.H, self.index[outer], math.ceil(count / at_once), step * at_once, at_once),
            *low,
            NdlDim(DimKind.L, self.index[inner], length, self._stride(operand, inner)),
        ]
