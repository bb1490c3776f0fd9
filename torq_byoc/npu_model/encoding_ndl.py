"""The binary form of descriptors inside a slice task; ``encoding`` shows the layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

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


_Walk = tuple[Agent, DType, tuple[NdlDim, ...]]
"""A descriptor without its base."""


def encode_ndls(ndls: Sequence[Ndl]) -> list[bytes]:
    """The bytes of every descriptor of a task.

    Raises:
        InternalError: a value does not fit its field.
    """
    parts = []
    for ndl, (head, dims) in zip(ndls, _encoded_walks(_walks(ndls)), strict=True):
        if ndl.agent in MEMORY_AGENTS:
            parts += [head, pack(_BASE, f"{ndl.agent.name} base", ndl.base), dims]
        elif ndl.base:
            raise does_not_fit(ndl.agent.name, ndl, "of a register descriptor, which has no address")
        else:
            parts += [head, dims]
    return parts


def _walks(ndls: Sequence[Ndl]) -> tuple[_Walk, ...]:
    return tuple([(ndl.agent, ndl.dtype, ndl.dims) for ndl in ndls])


@lru_cache(maxsize=4096)
def _encoded_walks(walks: tuple[_Walk, ...]) -> tuple[tuple[bytes, bytes], ...]:
    """What stands before and after the base of every descriptor: tiles of a node differ in bases alone."""
    first: dict[tuple[NdlDim, ...], int] = {}
    encoded = []
    for position, (agent, dtype, dims) in enumerate(walks):
        code = agent | _DTYPE_CODE[dtype] << 4
        count = bits("dims of a descriptor", len(dims), 7)
        if agent in MEMORY_AGENTS:
            encoded.append((pack(_NDL, agent.name, code, count), b"".join(map(_encode_memory_dim, dims))))
            continue
        if any(dim.stride for dim in dims):
            raise does_not_fit(agent.name, dims, "of a register descriptor, which has no address")
        twin = first.setdefault(dims, position) if dims else position
        own = twin == position
        head = pack(_NDL, agent.name, code, count if own else _SHARED | twin)
        encoded.append((head, b"".join(map(_encode_register_dim, dims)) if own else b""))
    return tuple(encoded)


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
    walked: set[tuple[NdlDim, ...]] = set()
    for ndl in ndls:
        size += _NDL.size
        if ndl.agent in MEMORY_AGENTS:
            size += _BASE.size + _MEMORY_DIM.size * len(ndl.dims)
        elif ndl.dims not in walked:
            walked.add(ndl.dims)
            size += _REGISTER_DIM.size * len(ndl.dims)
    return size


def ndl_bases(data: bytes, offset: int, count: int) -> list[tuple[int, int]]:
    """Byte offset and value of the base addresses of ``count`` encoded descriptors from an offset on."""
    found = []
    for _ in range(count):
        code, dims = _NDL.unpack_from(data, offset)
        offset += _NDL.size
        if code & 15 in MEMORY_AGENTS:
            found.append((offset, _BASE.unpack_from(data, offset)[0]))
            offset += _BASE.size + _MEMORY_DIM.size * dims
        elif not dims & _SHARED:
            offset += _REGISTER_DIM.size * dims
    return found


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
            dims = _decode_memory_dims(reader.raw(dim_count * _MEMORY_DIM.size))
        else:
            base = 0
            dims = _decode_register_dims(reader, dim_count, ndls)
        if any(dim.loop >= loops for dim in dims):
            raise reader.malformed(f"{agent.name} walks a loop that the nest of {loops} does not have")
        ndls.append(Ndl(agent, base, dtype, dims))
    return tuple(ndls)


@lru_cache(maxsize=4096)
def _decode_memory_dims(raw: bytes) -> tuple[NdlDim, ...]:
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
    return _decode_walk(reader.raw(count * _REGISTER_DIM.size))


@lru_cache(maxsize=4096)
def _decode_walk(raw: bytes) -> tuple[NdlDim, ...]:
    return tuple(
        NdlDim(_KINDS[packed >> 14], word >> 28, word & 0xFFFFFFF, 0, packed & 0x3FFF)
        for word, packed in _REGISTER_DIM.iter_unpack(raw)
    )
