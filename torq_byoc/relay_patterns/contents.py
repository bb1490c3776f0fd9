"""What a partition's function holds: its groups, as local composite functions, and their calls in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import relax
from tvm.ir import Call


@dataclass(frozen=True, eq=False)
class Contents:
    """The bindings of a partition.

    Attributes:
        groups: local composite functions by variable.
        values: all other bindings in order.
    """

    groups: dict[relax.Var, relax.Function]
    values: dict[relax.Var, relax.Expr]

    @classmethod
    def of(cls, function: relax.Function) -> Contents:
        """Those of a partition's function."""
        groups: dict[relax.Var, relax.Function] = {}
        values: dict[relax.Var, relax.Expr] = {}
        for block in function.body.blocks:
            for binding in block.bindings:
                (groups if isinstance(binding.value, relax.Function) else values)[binding.var] = binding.value
        return cls(groups, values)

    def calls(self) -> Iterator[tuple[relax.Var, relax.Function, Call]]:
        """Result, composite function and call of every group, in order."""
        for var, value in self.values.items():
            composite = self.groups.get(value.op) if isinstance(value, Call) else None
            if composite is not None:
                yield var, composite, value
