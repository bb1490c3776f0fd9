"""MatMulNBits: floats times weights of 4 or 8 bits in blocks, two codes of 4 bits a byte, the low one first.

Before: ``y = MatMulNBits(x, w: uint8 [N, blocks, bytes], scales, zero points, , bias)``
After:  ``y = Add(MatMul(x, DequantizeLinear(codes: uint8 [K, N], scales, zero points, axis=0, block_size)), bias)``
"""

from __future__ import annotations

import numpy as np

from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter


def _matmul(r: Rewriter) -> None:
    inner, columns, bits = (int(r.attribute(name, default)) for name, default in (("K", 0), ("N", 0), ("bits", 4)))
    block = int(r.attribute("block_size", 0))
    packed, scales = r.editor.array(r.name(1)), r.editor.array(r.name(2))
    if packed is None or scales is None or min(inner, columns, block) < 1:
        raise r.refusal("its weights, their scales and their sizes are not all constant")
    if bits not in (4, 8):
        raise r.refusal(f"its weights have {bits} bits, not 4 or 8")
    if r.name(4):
        raise r.refusal(f"its columns are reordered by {r.name(4)!r}")
    blocks = -(-inner // block)
    if packed.dtype != np.uint8 or scales.size != columns * blocks:
        raise r.refusal(f"{packed.dtype} weights with {scales.size} scales, not bytes with {columns * blocks}")
    codes = _unpacked(r, packed, (columns, blocks * block), bits)[:, :inner]
    zeros = _zero_points(r, (columns, blocks), bits)
    operands = [
        r.constant(np.ascontiguousarray(codes.T), "codes"),
        r.constant(np.ascontiguousarray(scales.reshape(columns, blocks).T), "scales"),
        r.constant(np.ascontiguousarray(zeros.T), "zero_points"),
    ]
    r.emit("MatMul", [r.name(0), r.emit("DequantizeLinear", operands, axis=0, block_size=block)])
    if r.name(5):
        r.emit("Add", [r.nodes[-1].output[0], r.name(5)])
    r.finish()


def _zero_points(r: Rewriter, shape: tuple[int, int], bits: int) -> np.ndarray:
    if not r.name(3):
        return np.full(shape, 1 << (bits - 1), np.uint8)
    packed = r.editor.array(r.name(3))
    if packed is None or packed.dtype != np.uint8:
        raise r.refusal(f"its zero points {r.name(3)!r} are not constant bytes")
    return _unpacked(r, packed, shape, bits)


def _unpacked(r: Rewriter, packed: np.ndarray, shape: tuple[int, int], bits: int) -> np.ndarray:
    """Codes of rows whose bytes are ``packed``; rows begin with a byte of their own."""
    row_bytes = -(-shape[1] * bits // 8)
    if packed.size != shape[0] * row_bytes:
        raise r.refusal(f"{packed.size} bytes are stored for {shape[0]} rows of {shape[1]} codes of {bits} bits")
    rows = packed.reshape(shape[0], row_bytes)
    if bits == 8:
        return rows
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(shape[0], -1)[:, : shape[1]]


REWRITES: dict[tuple[str, str], Rewrite] = {("com.microsoft", "MatMulNBits"): Rewrite(_matmul, needs=(0, 1, 2))}
