"""Shape arithmetic of ONNX that validation, the passes and the converters share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torq_byoc.errors import ShapeError


def normalize_axis(axis: int, rank: int, node: str) -> int:
    """The non-negative form of an axis; ShapeError when it lies outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ShapeError(
            f"axis {axis} does not exist",
            where=f"node {node!r}",
            why=f"the tensor has {rank} dimensions, so an axis lies in {-rank}..{rank - 1}",
            remedy="export the model again; the file does not follow the ONNX operator definition",
        )
    return axis % rank


def reshape_target(shape: Sequence[int], target: Sequence[int], allow_zero: bool, node: str) -> tuple[int, ...]:
    """What ONNX Reshape makes of ``target`` (0 copies a dimension, one -1 takes the rest)."""
    result = [shape[i] if n == 0 and not allow_zero and i < len(shape) else n for i, n in enumerate(target)]
    total = math.prod(shape)
    known = math.prod(n for n in result if n != -1)
    if result.count(-1) == 1 and known > 0 and total % known == 0:
        result[result.index(-1)] = total // known
    if any(n < 0 for n in result) or math.prod(result) != total:
        raise ShapeError(
            "Reshape changes the number of elements",
            where=f"node {node!r}",
            why=f"{list(shape)} holds {total} elements, the target {list(target)} does not",
            remedy="check the input shapes given with --shape; the model may be built for other ones",
        )
    return tuple(result)


def same_padding(size: int, kernel: int, stride: int, dilation: int, lower: bool) -> tuple[int, int]:
    """Pads (before, after) that make the output ceil(size / stride) long: auto_pad SAME_UPPER or SAME_LOWER."""
    output = -(-size // stride)
    total = max(0, (output - 1) * stride + dilation * (kernel - 1) + 1 - size)
    small = total // 2
    return (total - small, small) if lower else (small, total - small)
