"""Bounds of one axis of a tile's region, as functions of the tile's place in the grid.

Most are affine: start = base + sum of stride x tile index, extent constant.  A tile that ends inside a group
of channels, or inside a repeated pixel, needs quotients as well; those keep their expression.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.errors import InternalError

Evaluate = Callable[[Sequence[int]], int]


@dataclass(frozen=True)
class AffineAxis:
    """Start affine in the tile indices, constant extent.

    Attributes:
        base: start in the first tile.
        strides: output axis -> step of the start from one tile to the next along that axis.
        extent: elements that a full tile reads.
    """

    base: int
    strides: Mapping[int, int]
    extent: int

    def bounds(self, index: Sequence[int], tile: Sequence[int], missing: Sequence[int]) -> tuple[int, int]:
        """First element and end, not clipped.

        Args:
            index: place in the tile grid, one number an output axis.
            tile: extents of a full tile.
            missing: by how much this tile is smaller; every output less takes stride / tile inputs less.
        """
        start, extent = self.base, self.extent
        for axis, stride in self.strides.items():
            start += stride * index[axis]
            extent -= stride * missing[axis] // tile[axis]
        return start, start + extent


@dataclass(frozen=True)
class QuotientAxis:
    """Bounds with divisions; a smaller tile keeps the bounds of a full one (clipping cuts what is beyond)."""

    low: Evaluate
    high: Evaluate

    def bounds(self, index: Sequence[int], tile: Sequence[int], missing: Sequence[int]) -> tuple[int, int]:
        """First element and end, not clipped; see ``AffineAxis.bounds``."""
        del tile, missing
        return self.low(index), self.high(index) + 1


RegionAxis = AffineAxis | QuotientAxis


def axis_of(low: Any, high: Any, loops: Mapping[Any, int]) -> RegionAxis:
    """The axis with the given TIR bounds (both inclusive).

    Args:
        low, high: expressions of the tile loops.
        loops: tile loop variable -> output axis.
    """
    from tvm import sym

    analyzer = sym.Analyzer()
    variables = list(loops)
    extent = _number(analyzer.simplify(high - low + 1))
    terms = sym.detect_linear_equation(low, variables) if variables else [low]
    numbers = [number for term in terms if (number := _number(analyzer.simplify(term))) is not None]
    if extent is None or len(numbers) != len(variables) + 1:
        return QuotientAxis(evaluator(low, loops), evaluator(high, loops))
    strides = {loops[variable]: stride for variable, stride in zip(variables, numbers, strict=False) if stride}
    return AffineAxis(numbers[-1], strides, extent)


def evaluator(expression: Any, loops: Mapping[Any, int]) -> Evaluate:
    """A Python function of the tile indices that gives the value of an integer TIR expression.

    Raises:
        InternalError: the expression has an operation that no region should have.
    """
    from tvm import tirx

    if isinstance(expression, tirx.IntImm):
        value = int(expression)
        return lambda index: value
    for variable, axis in loops.items():
        if expression.same_as(variable):
            return operator.itemgetter(axis)
    combine = _operations().get(type(expression))
    if combine is None:
        raise InternalError(
            "a tile region of a scheduled function cannot be read back",
            why=f"{expression} is a {type(expression).__name__}",
            remedy="report it with the model; the tensor expression of this operator is at fault",
        )
    a, b = evaluator(expression.a, loops), evaluator(expression.b, loops)
    return lambda index: combine(a(index), b(index))


def _operations() -> dict[type, Callable[[int, int], int]]:
    from tvm import tirx

    return {
        tirx.Add: lambda a, b: a + b,
        tirx.Sub: lambda a, b: a - b,
        tirx.Mul: lambda a, b: a * b,
        tirx.FloorDiv: lambda a, b: a // b,
        tirx.FloorMod: lambda a, b: a % b,
        tirx.Min: min,
        tirx.Max: max,
    }


def _number(expression: Any) -> int | None:
    from tvm import tirx

    return int(expression) if isinstance(expression, int | tirx.IntImm) else None
