"""The logical form of a slice task: loops by name, operands by the bytes each loop moves them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, AluConfig, OutputWindow, Plane, Role, Tag


class LoopSpec(msgspec.Struct, frozen=True, gc=False):
    """A loop of the nest under the name by which operands give their strides."""

    name: str
    extent: int
    role: Role = Role.PARALLEL
    tag: Tag = Tag.OTHER


class Operand(msgspec.Struct, frozen=True, gc=False):
    """Where an operand lies in LRAM and how many bytes each loop moves it; loops not named do not.

    For a planar D operand (``LoopNest.plane``) the lane, kernel-row and kernel-column loops are moved by
    the plane logic and must not be named.  With an output window the lane loop must not be named.
    """

    base: int
    dtype: DType
    strides: Mapping[str, int] = msgspec.field(default_factory=dict)


class LoopNest(msgspec.Struct, frozen=True, gc=False):
    """One slice task in its logical form.

    Attributes:
        loops: outermost first; reduce loops innermost.
        data, weight, bias, result: operands; ``weight`` None means the ALU bypasses W.  A nest that leaves its
            sums in PRAM (``alu.output`` False) makes no use of bias and result, but they shape its vector.
        vector: lanes a cycle; 0 takes the widest the types allow.
        weights: group members a cycle.
    """

    loops: tuple[LoopSpec, ...]
    result: Operand
    data: Operand | None = None
    weight: Operand | None = None
    bias: Operand | None = None
    alu: AluConfig | None = None
    act: ActConfig = ActConfig()
    plane: Plane | None = None
    window: OutputWindow | None = None
    table: tuple[tuple[int, int], ...] | None = None
    fill_value: int | None = None
    vector: int = 0
    weights: int = 1

    def names(self, role: Role) -> tuple[str, ...]:
        """Names of the loops of one role, outermost first."""
        return tuple(loop.name for loop in self.loops if loop.role is role)
