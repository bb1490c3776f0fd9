"""The binary form of descriptors inside a slice task; ``encoding`` shows the layout."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.fields import Layout, Reader, bits, does_not_fit, pack
from torq_byoc.npu_model.isa import Agent, DimKind, Loop, Ndl, NdlDim, Role, SliceTask

MEMORY_AGENTS = frozenset({Agent.DEDR, Agent.DEWR, Agent.DEBR, Agent.DEQW})
"""Agents whose descriptors address LRAM."""

_NDL = struct.Struct("<BB")
_BASE = struct.Struct("<I")
_HEAD, _STEP, _COUNT = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")
_STRIDE = Layout("t")

_SHARED = 0x80
_HAS_STEP, _HAS_COUNT = 0x40, 0x80
_COUNT_BITS = 28

_DTYPES = tuple(DType)
_DTYPE_CODE = {dtype: code for code, dtype in enumerate(_DTYPES)}
_KINDS = tuple(DimKind)


_Walk = tuple[Agent, DType, tuple[NdlDim, ...]]
"""A descriptor without its base."""


def encode_ndls(task: SliceTask) -> list[bytes]:
    """The bytes of every descriptor of a task.

    Raises:
        InternalError: a value does not fit its field.
    """
    parts = []
    walks = tuple([(ndl.agent, ndl.dtype, ndl.dims) for ndl in task.ndls])
    encoded = _encoded_walks(walks, task.loops, task.vector, task.weights)
    for ndl, (head, dims) in zip(task.ndls, encoded, strict=True):
        if ndl.agent in MEMORY_AGENTS:
            parts += [head, pack(_BASE, f"{ndl.agent.name} base", ndl.base), dims]
        elif ndl.base:
            raise does_not_fit(ndl.agent.name, ndl, "of a register descriptor, which has no address")
        else:
            parts += [head, dims]
    return parts


@lru_cache(maxsize=4096)
def _encoded_walks(
    walks: tuple[_Walk, ...], loops: tuple[Loop, ...], vector: int, weights: int
) -> tuple[tuple[bytes, bytes], ...]:
    """What stands before and after the base of every descriptor: tiles of a node differ in bases alone."""
    first: dict[tuple[NdlDim, ...], int] = {}
    encoded = []
    for position, (agent, dtype, dims) in enumerate(walks):
        code = agent | _DTYPE_CODE[dtype] << 4
        count = bits("dims of a descriptor", len(dims), 7)
        if agent in MEMORY_AGENTS:
            own = b"".join([_encode_dim(dim, loops, vector, weights) + _encode_stride(dim) for dim in dims])
            encoded.append((pack(_NDL, agent.name, code, count), own))
            continue
        if any(dim.stride for dim in dims):
            raise does_not_fit(agent.name, dims, "of a register descriptor, which has no address")
        twin = first.setdefault(dims, position) if dims else position
        if twin == position:
            own = b"".join([_encode_dim(dim, loops, vector, weights) for dim in dims])
            encoded.append((pack(_NDL, agent.name, code, count), own))
        else:
            encoded.append((pack(_NDL, agent.name, code, _SHARED | bits("shared dims", twin, 7)), b""))
    return tuple(encoded)


def _encode_dim(dim: NdlDim, loops: Sequence[Loop], vector: int, weights: int) -> bytes:
    head = bits("dim loop", dim.loop, 4) | dim.kind << 4
    optional = b""
    if dim.step != 1:
        head |= _HAS_STEP
        optional += pack(_STEP, "dim step", dim.step)
    if not _follows(dim, loops, vector, weights):
        head |= _HAS_COUNT
        optional += pack(_COUNT, "dim count", bits("dim count", dim.count, _COUNT_BITS))
    return pack(_HEAD, "dim", head) + optional


def _encode_stride(dim: NdlDim) -> bytes:
    return pack(_STRIDE, "dim stride", dim.stride)


def _follows(dim: NdlDim, loops: Sequence[Loop], vector: int, weights: int) -> bool:
    """Whether a dim's count need not be said."""
    return dim.loop < len(loops) and dim.count == _count(dim.kind, dim.step, loops[dim.loop], vector, weights)


def _count(kind: DimKind, step: int, loop: Loop, vector: int, weights: int) -> int:
    """How often a dim counts that walks all of its loop: inside one cycle, as much of it as one cycle takes."""
    count = -(-loop.extent // max(step, 1))
    if kind is DimKind.L and loop.role is Role.LANE:
        return min(count, vector)
    if kind is DimKind.L and loop.role is Role.GROUP:
        return min(count, weights)
    return count


def ndls_bytes(task: SliceTask) -> int:
    """Size of a task's encoded descriptors in bytes, without encoding them."""
    size = 0
    walked: set[tuple[NdlDim, ...]] = set()
    for ndl in task.ndls:
        size += _NDL.size
        if ndl.agent in MEMORY_AGENTS:
            size += _BASE.size + _STRIDE.size * len(ndl.dims) + _dims_bytes(ndl.dims, task)
        elif ndl.dims not in walked:
            walked.add(ndl.dims)
            size += _dims_bytes(ndl.dims, task)
    return size


def _dims_bytes(dims: Iterable[NdlDim], task: SliceTask) -> int:
    """Size of dims without their strides."""
    size = 0
    for dim in dims:
        size += _HEAD.size
        if dim.step != 1:
            size += _STEP.size
        if not _follows(dim, task.loops, task.vector, task.weights):
            size += _COUNT.size
    return size


def ndl_bases(data: bytes, offset: int, count: int) -> list[tuple[int, int]]:
    """Byte offset and value of the base addresses of ``count`` encoded descriptors from an offset on."""
    found = []
    for _ in range(count):
        code, dims = _NDL.unpack_from(data, offset)
        offset += _NDL.size
        stride = 0
        if code & 15 in MEMORY_AGENTS:
            found.append((offset, _BASE.unpack_from(data, offset)[0]))
            offset += _BASE.size
            stride = _STRIDE.size
        if not dims & _SHARED:
            for _ in range(dims):
                head = data[offset]
                offset += _HEAD.size + stride
                offset += (_STEP.size if head & _HAS_STEP else 0) + (_COUNT.size if head & _HAS_COUNT else 0)
    return found


def put_base(image: bytearray, offset: int, base: int) -> None:
    """Write a base address where ``ndl_bases`` found one."""
    _BASE.pack_into(image, offset, base)


def decode_ndls(reader: Reader, count: int, loops: Sequence[Loop], vector: int, weights: int) -> tuple[Ndl, ...]:
    """The next ``count`` descriptors of a task.

    Args:
        reader: stands before the first of them.
        count: how many there are.
        loops, vector, weights: of the task.

    Raises:
        ProgramFormatError, ValueError, IndexError: the bytes are no valid encoding.
    """
    ndls: list[Ndl] = []
    for _ in range(count):
        code, dim_count = reader.take(_NDL)
        agent, dtype = Agent(code & 15), _DTYPES[code >> 4]
        memory = agent in MEMORY_AGENTS
        base = reader.take(_BASE)[0] if memory else 0
        if dim_count & _SHARED:
            twin = ndls[dim_count ^ _SHARED]
            if memory or twin.agent in MEMORY_AGENTS:
                raise reader.malformed(f"{agent.name} refers to dims of {twin.agent.name}")
            dims = twin.dims
        else:
            dims = tuple([_decode_dim(reader, memory, agent, loops, vector, weights) for _ in range(dim_count)])
        ndls.append(Ndl(agent, base, dtype, dims))
    return tuple(ndls)


def _decode_dim(reader: Reader, memory: bool, agent: Agent, loops: Sequence[Loop], vector: int, weights: int) -> NdlDim:
    (head,) = reader.take(_HEAD)
    kind, loop = _KINDS[head >> 4 & 3], head & 15
    if loop >= len(loops):
        raise reader.malformed(f"{agent.name} walks a loop that the nest of {len(loops)} does not have")
    step = reader.take(_STEP)[0] if head & _HAS_STEP else 1
    count = reader.take(_COUNT)[0] if head & _HAS_COUNT else _count(kind, step, loops[loop], vector, weights)
    if count >> _COUNT_BITS:
        raise reader.malformed(f"{agent.name} counts to {count}, more than {_COUNT_BITS} bits hold")
    return NdlDim(kind, loop, count, reader.take(_STRIDE)[0] if memory else 0, step)
