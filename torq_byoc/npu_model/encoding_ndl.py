"""The binary form of descriptors inside a slice task; ``encoding`` shows the layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.fields import Reader, bits, does_not_fit, pack
from torq_byoc.npu_model.isa import Agent, DimKind, Ndl, NdlDim

MEMORY_AGENTS = frozenset({Agent.DEDR, Agent.DEWR, Agent.DEBR, Agent.DEQW})
"""Agents whose descriptors address LRAM."""

_NDL = struct.Struct("<BB")
_BASE = struct.Struct("<I")
_MEMORY_DIM = struct.Struct("<IIH")
_REGISTER_DIM = struct.Struct("<IH")

_SHARED = 0x80
_STRIDE_HALF = 1 << 23
_STRIDE_MASK = (1 << 24) - 1

_DTYPES = tuple(DType)
_DTYPE_CODE = {dtype: code for code, dtype in enumerate(_DTYPES)}
_KINDS = tuple(DimKind)


def _twins(ndls: Sequence[Ndl]) -> list[int | None]:
    """For every register descriptor the first one before it with the same dims, when there are any dims."""
    twins: list[int | None] = []
    first: list[tuple[tuple[NdlDim, ...], int]] = []
    for position, ndl in enumerate(ndls):
        twin = None
        if ndl.agent not in MEMORY_AGENTS and ndl.dims:
            twin = next((earlier for dims, earlier in first if dims == ndl.dims), None)
            if twin is None:
                first.append((ndl.dims, position))
        twins.append(twin)
    return twins


def encode_ndls(ndls: Sequence[Ndl]) -> list[bytes]:
    """The bytes of every descriptor of a task.

    Raises:
        InternalError: a value does not fit its field.
    """
    parts = []
    for ndl, twin in zip(ndls, _twins(ndls), strict=True):
        code = ndl.agent | _DTYPE_CODE[ndl.dtype] << 4
        count = bits("dims of a descriptor", len(ndl.dims), 7)
        if ndl.agent in MEMORY_AGENTS:
            parts.append(pack(_NDL, ndl.agent.name, code, count))
            parts.append(pack(_BASE, f"{ndl.agent.name} base", ndl.base))
            parts += [_encode_memory_dim(dim) for dim in ndl.dims]
            continue
        if ndl.base or any(dim.stride for dim in ndl.dims):
            raise does_not_fit(ndl.agent.name, ndl, "of a register descriptor, which has no address")
        parts.append(pack(_NDL, ndl.agent.name, code, count if twin is None else _SHARED | twin))
        if twin is None:
            parts += [_encode_register_dim(dim) for dim in ndl.dims]
    return parts


def _walk_word(dim: NdlDim) -> int:
    return bits("dim count", dim.count, 28) | bits("dim loop", dim.loop, 4) << 28


def _encode_memory_dim(dim: NdlDim) -> bytes:
    if not -_STRIDE_HALF <= dim.stride < _STRIDE_HALF:
        raise does_not_fit("dim stride", dim.stride, "of 24 bits, signed")
    placed = (dim.stride & _STRIDE_MASK) | dim.kind << 24
    return pack(_MEMORY_DIM, "memory dim", _walk_word(dim), placed, dim.step)


def _encode_register_dim(dim: NdlDim) -> bytes:
    return pack(_REGISTER_DIM, "register dim", _walk_word(dim), bits("dim step", dim.step, 14) | dim.kind << 14)


def ndls_bytes(ndls: Sequence[Ndl]) -> int:
    """Size of the encoded descriptors in bytes, without encoding them."""
    size = 0
    for ndl, twin in zip(ndls, _twins(ndls), strict=True):
        size += _NDL.size
        if ndl.agent in MEMORY_AGENTS:
            size += _BASE.size + _MEMORY_DIM.size * len(ndl.dims)
        elif twin is None:
            size += _REGISTER_DIM.size * len(ndl.dims)
    return size


def decode_ndls(reader: Reader, count: int, loops: int) -> tuple[Ndl, ...]:
    """The next ``count`` descriptors of a task with ``loops`` loops.

    Raises:
        ProgramFormatError, ValueError, IndexError: the bytes are no valid encoding.
    """
    ndls: list[Ndl] = []
    for _ in range(count):
        code, dim_count = reader.take(_NDL)
        agent, dtype = Agent(code & 15), _DTYPES[code >> 4]
        if agent in MEMORY_AGENTS:
            base = reader.take(_BASE)[0]
            dims = _decode_memory_dims(reader, dim_count)
        else:
            base = 0
            dims = _decode_register_dims(reader, dim_count, ndls)
        if any(dim.loop >= loops for dim in dims):
            raise reader.malformed(f"{agent.name} walks a loop that the nest of {loops} does not have")
        ndls.append(Ndl(agent, base, dtype, dims))
    return tuple(ndls)


def _decode_memory_dims(reader: Reader, count: int) -> tuple[NdlDim, ...]:
    raw = reader.raw(count * _MEMORY_DIM.size)
    return tuple(
        NdlDim(
            _KINDS[placed >> 24],
            word >> 28,
            word & 0xFFFFFFF,
            ((placed & _STRIDE_MASK) ^ _STRIDE_HALF) - _STRIDE_HALF,
            step,
        )
        for word, placed, step in _MEMORY_DIM.iter_unpack(raw)
    )


def _decode_register_dims(reader: Reader, count: int, ndls: Sequence[Ndl]) -> tuple[NdlDim, ...]:
    if count & _SHARED:
        return ndls[count ^ _SHARED].dims
    raw = reader.raw(count * _REGISTER_DIM.size)
    return tuple(
        NdlDim(_KINDS[packed >> 14], word >> 28, word & 0xFFFFFFF, 0, packed & 0x3FFF)
        for word, packed in _REGISTER_DIM.iter_unpack(raw)
    )
