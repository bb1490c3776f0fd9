"""Binary forms: exact round trips, sizes that depend on structure alone, and refusal of what does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec import structs

from tests.npu_model import infra, nests
from torq_byoc.errors import InternalError, ProgramFormatError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import (
    decode_nss,
    decode_slice_program,
    encode_nss,
    encode_slice_program,
    encode_slice_task,
    encoded_size,
    nss_bytes,
    program_bytes,
)
from torq_byoc.npu_model.isa import (
    ActConfig,
    ActMode,
    Agent,
    DimKind,
    DmaDescriptor,
    Engine,
    Loop,
    Ndl,
    NdlDim,
    NssTask,
    Role,
    Rounding,
    SliceTask,
    StartDma,
    StartSlice,
    Tag,
    WaitFor,
)

CONV = infra.conv3x3(nests.CONFIG, 2000, 9000, 20000, 30000, (16, 14, 14, 16))
TABLE = tuple((int(base), int(slope)) for base, slope in zip(range(-256, 256), range(256, -256, -1), strict=True))
NSS = (
    NssTask((infra.load(0x1000, 0xFFFFFFF0, (1 << 24) - 1, (3, -(1 << 23)), (1 << 27, 7)),), ()),
    NssTask((StartSlice(1, 0x7FFF8, 5120), infra.store(0x500, 0x100000, 1)), (WaitFor(Engine.SLICE, 1),)),
    NssTask((), (WaitFor(Engine.DMA_IN), WaitFor(Engine.DMA_OUT), WaitFor(Engine.SLICE, 15))),
)


@pytest.mark.parametrize("seed", range(60))
def test_slice_task_round_trip_is_exact(seed):
    rng = np.random.default_rng(seed)
    tasks = tuple(nests.random_task(rng) for _ in range(rng.integers(1, 4)))
    data = encode_slice_program(tasks)
    assert decode_slice_program(data) == tasks
    assert len(data) == program_bytes(tasks) == sum(map(encoded_size, tasks))


@pytest.mark.parametrize(
    "low, high",
    [(-math.inf, math.inf), (-128, 127), (-(2**31), 2**31 - 1), (0.0, 6.0), (-0.125, 2.0**-149), (0, math.inf)],
)
def test_clip_bounds_keep_value_and_kind(low, high):
    task = structs.replace(CONV, act=ActConfig(clip_min=low, clip_max=high))
    act = decode_slice_program(encode_slice_task(task))[0].act
    assert (act.clip_min, act.clip_max) == (low, high)
    assert (type(act.clip_min), type(act.clip_max)) == (type(low), type(high))


def test_every_act_field_and_enum_survives():
    for mode in ActMode:
        for rounding in Rounding:
            act = ActConfig(mode, 63, rounding, -32768, -3, 5, 48)
            task = structs.replace(CONV, act=act)
            assert decode_slice_program(encode_slice_task(task))[0].act == act


def test_float_pad_value_survives():
    plane = structs.replace(CONV.plane, pad_value=-math.inf)
    task = structs.replace(CONV, plane=plane)
    assert decode_slice_program(encode_slice_task(task)) == (task,)


def test_size_does_not_depend_on_addresses_strides_or_values():
    moved = structs.replace(
        CONV,
        ndls=tuple(
            structs.replace(
                ndl,
                base=123456,
                dims=tuple(structs.replace(dim, stride=dim.stride * 3 - 77) for dim in ndl.dims),
            )
            if ndl.agent in (Agent.DEDR, Agent.DEWR, Agent.DEBR, Agent.DEQW)
            else ndl
            for ndl in CONV.ndls
        ),
        act=ActConfig(shift=1, clip_min=-math.inf),
    )
    assert encoded_size(moved) == encoded_size(CONV) == len(encode_slice_task(moved)) == len(encode_slice_task(CONV))


def test_a_conv_task_is_small_and_a_table_adds_two_kib():
    assert encoded_size(CONV) < 600
    with_table = structs.replace(CONV, table=TABLE)
    assert encoded_size(with_table) == encoded_size(CONV) + 2048
    assert decode_slice_program(encode_slice_task(with_table)) == (with_table,)


@pytest.mark.parametrize(
    "change, field",
    [
        ({"vector": 1 << 16}, "task header"),
        ({"act": ActConfig(zero_point=32768)}, "ACT"),
        ({"act": ActConfig(shift=-1)}, "ACT"),
        ({"act": ActConfig(clip_max=2**31)}, "clip maximum"),
        ({"act": ActConfig(clip_min=-0.1)}, "clip minimum"),
        ({"act": ActConfig(clip_min=-1e39)}, "clip minimum"),
        ({"loops": (Loop(Tag.FLAT, 1 << 28, Role.LANE),)}, "loop extent"),
        ({"table": TABLE[:511]}, "look-up table"),
        ({"table": ((40000, 0),) * 512}, "look-up table"),
        ({"fill_value": 1 << 40}, "fill value"),
        ({"ndls": (Ndl(Agent.DEDR, -1, DType.INT8, ()),)}, "DEDR base"),
        ({"ndls": (Ndl(Agent.CEDR, 4, DType.INT8, ()),)}, "CEDR"),
        ({"ndls": (Ndl(Agent.DEDR, 0, DType.INT8, (NdlDim(DimKind.H, 0, 2, 1 << 23),)),)}, "dim stride"),
        ({"ndls": (Ndl(Agent.DEDR, 0, DType.INT8, (NdlDim(DimKind.H, 16, 2, 1),)),)}, "dim loop"),
        ({"ndls": (Ndl(Agent.DEDR, 0, DType.INT8, (NdlDim(DimKind.H, 0, 1 << 28, 1),)),)}, "dim count"),
        ({"ndls": (Ndl(Agent.CEDR, 0, DType.INT8, (NdlDim(DimKind.H, 0, 2, 0, 1 << 16),)),)}, "dim step"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(change, field):
    with pytest.raises(InternalError) as caught:
        encode_slice_task(structs.replace(CONV, **change))
    assert caught.value.where == field


def test_register_descriptors_with_equal_walks_are_stored_once():
    lone = structs.replace(CONV, ndls=tuple(ndl for ndl in CONV.ndls if ndl.agent is not Agent.CEPW))
    assert encoded_size(CONV) - encoded_size(lone) == 2


def test_a_register_descriptor_takes_no_dims_from_memory():
    """They have strides, which a register descriptor has no field for."""
    dims = (NdlDim(DimKind.H, 0, 96, 8),)
    loops = (Loop(Tag.FLAT, 96, Role.LANE),)
    register = Ndl(Agent.CEDR, 0, DType.INT8, (NdlDim(DimKind.H, 0, 96, 0),))
    task = SliceTask(loops, 32, 1, (Ndl(Agent.DEDR, 64, DType.INT8, dims), register, register))
    data = bytearray(encode_slice_task(task))
    assert data[-1] == 0x80 | 1  # the dims of descriptor 1
    data[-1] = 0x80 | 0
    with pytest.raises(ProgramFormatError, match="CEDR refers to dims of DEDR"):
        decode_slice_program(bytes(data))


@pytest.mark.parametrize(
    ("dim", "more"),
    [
        (NdlDim(DimKind.H, 0, 3, 8, 32), 2),  # the step
        (NdlDim(DimKind.H, 0, 2, 8, 32), 2 + 4),  # and a count that does not reach the end of the loop
        (NdlDim(DimKind.L, 0, 32, 1), 0),  # a vector of the lanes
        (NdlDim(DimKind.L, 0, 24, 1), 4),
        (NdlDim(DimKind.L, 1, 4, 1), 0),  # the members of a group
        (NdlDim(DimKind.H, 2, 7, 1), 0),  # a whole loop
        (NdlDim(DimKind.H, 2, 6, 1), 4),
    ],
)
def test_a_dim_says_only_what_does_not_follow_from_its_loop(dim, more):
    loops = (Loop(Tag.FLAT, 96, Role.LANE), Loop(Tag.GROUP, 9, Role.GROUP), Loop(Tag.OTHER, 7, Role.PARALLEL))
    with_it, without = (
        SliceTask(loops, 32, 4, (Ndl(Agent.DEDR, 64, DType.INT8, dims), Ndl(Agent.DEQW, 8, DType.INT8, ())))
        for dims in ((dim,), ())
    )
    assert encoded_size(with_it) - encoded_size(without) == 1 + 3 + more
    assert decode_slice_program(encode_slice_task(with_it)) == (with_it,)


def test_nss_round_trip_is_exact():
    data = encode_nss(NSS)
    assert decode_nss(data) == NSS
    assert len(data) == nss_bytes(NSS)


def test_four_operations_fit_a_sequencer_block():
    descriptor = DmaDescriptor(1, 2, 3, ((4, 5), (6, 7), (8, 9)))
    task = NssTask((StartDma(Engine.DMA_IN, descriptor), StartSlice(0, 1, 2)), (WaitFor(Engine.DMA_IN),))
    assert nss_bytes((task,) * 10) <= 640


@pytest.mark.parametrize(
    "start",
    [
        StartSlice(256, 0, 1),
        StartSlice(0, -1, 1),
        infra.load(0, 1 << 32, 1),
        infra.load(0, 0, 1, (1, 1 << 31)),
        StartDma(Engine.CSS, DmaDescriptor(0, 0, 1)),
    ],
)
def test_a_start_that_does_not_fit_is_refused(start):
    with pytest.raises(InternalError):
        encode_nss((NssTask((start,)),))


@pytest.mark.parametrize("seed", range(300))
def test_damaged_bytes_never_fail_in_another_way(seed):
    rng = np.random.default_rng(seed)
    slice_code = seed % 2 == 0
    data = bytearray(encode_slice_program((CONV, nests.random_task(rng))) if slice_code else encode_nss(NSS))
    for _ in range(rng.integers(1, 4)):
        kind = rng.integers(4)
        start = int(rng.integers(len(data)))
        if kind == 0:
            data[start] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[start : start + int(rng.integers(1, 9))] = bytes(
                rng.integers(0, 256, int(rng.integers(1, 9))).tolist()
            )
        elif kind == 2:
            del data[max(start, 1) :]
        else:
            data[start : start + 4] = b"\xff" * 4
    decode = decode_slice_program if slice_code else decode_nss
    try:
        tasks = decode(bytes(data))
    except ProgramFormatError as error:
        assert error.where.startswith("byte ")
        return
    encoded = encode_slice_program(tasks) if slice_code else encode_nss(tasks)
    assert decode(encoded) == tasks or any(_has_nan(task) for task in tasks)


def _has_nan(task) -> bool:
    return isinstance(task, SliceTask) and "nan" in repr(task)


@pytest.mark.parametrize("data", [b"\x00", b"\xff" * 5, b"\x00" * 64, encode_slice_task(CONV)[:-1]])
def test_garbage_is_no_slice_program(data):
    with pytest.raises(ProgramFormatError):
        decode_slice_program(data)
    with pytest.raises(ProgramFormatError):
        decode_nss(data)


def test_trailing_bytes_are_refused():
    with pytest.raises(ProgramFormatError, match="after the last task"):
        decode_nss(encode_nss(NSS) + b"\x00")
    with pytest.raises(ProgramFormatError):
        decode_slice_program(encode_slice_task(CONV) + b"\x01\x00")
