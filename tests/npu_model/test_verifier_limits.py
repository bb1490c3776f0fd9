"""Hardware limits of tasks and transfers: one that keeps them passes, the nearest one that breaks them is refused."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.npu_model import infra, nests
from tests.npu_model.infra import load
from torq_byoc.npu_model.isa import (
    ActConfig,
    Agent,
    OutputWindow,
    Plane,
    Tag,
)
from torq_byoc.npu_model.limits import task_problems, transfer_problems

CONFIG = nests.CONFIG
CONV = infra.conv3x3(CONFIG, 2000, 9000, 20000, 30000, (16, 14, 14, 16))


PLANE = CONV.plane
WINDOW = CONV.window


@pytest.mark.parametrize(
    "change, words",
    [
        ({"vector": 128}, "lanes"),
        ({"weights": 8}, "lanes"),
        ({"weights": 17}, "17 weights"),
        ({"act": ActConfig(shift=64)}, "shift of 64"),
        ({"act": ActConfig(zero_point=32768)}, "zero point"),
        ({"act": ActConfig(sum_bits=40)}, "sum of 40"),
        ({"act": ActConfig(clip_min=5, clip_max=4)}, "clip bounds"),
        ({"act": ActConfig(clip_min=float("nan"))}, "clip bounds"),
        ({"alu": None}, "no ALU"),
        ({"table": ((0, 0),) * 512}, "with a table"),
        ({"plane": structs.replace(PLANE, stride_x=3)}, "convolution stride 3"),
        ({"plane": structs.replace(PLANE, pad_left=2)}, "left padding 2"),
        ({"plane": structs.replace(PLANE, row_stride=15)}, "rows 15 bytes apart"),
        ({"plane": structs.replace(PLANE, height=0)}, "at least 1"),
        ({"plane": structs.replace(PLANE, phase_stride_x=1 << 23)}, "phase_stride_x"),
        ({"window": structs.replace(WINDOW, columns=15)}, "column 15 of 14"),
        ({"window": structs.replace(WINDOW, stride_y=4)}, "stride 4"),
        ({"window": structs.replace(WINDOW, frame_width=28)}, "frame width"),
        ({"ndls": CONV.ndls[:-1]}, "DEQW"),
        ({"ndls": CONV.ndls + CONV.ndls[-1:]}, "two descriptors"),
        ({"loops": CONV.loops[::-1]}, "reduce loop outside"),
        ({"loops": CONV.loops[:1]}, "0 lane loops"),
    ],
)
def test_limits_of_a_task(change, words):
    assert task_problems(CONV, CONFIG) == []
    problems = task_problems(structs.replace(CONV, **change), CONFIG)
    assert any(words in problem for problem in problems), problems


def test_limits_hold_for_malformed_planes_without_a_crash():
    for plane in (Plane(0, 0, 0, 0), Plane(1, 1, 1, 1, stride_y=0, dilation_x=0)):
        assert task_problems(structs.replace(CONV, plane=plane), CONFIG)
    assert task_problems(structs.replace(CONV, window=OutputWindow(0, 0, 0, 0, 0, 0)), CONFIG)


@pytest.mark.parametrize("agent", [ndl.agent for ndl in CONV.ndls])
def test_any_changed_count_or_dropped_dim_contradicts_the_nest(agent):
    ndl = CONV.ndl(agent)
    for position, dim in enumerate(ndl.dims):
        for count in {dim.count + 1, dim.count * 2, max(1, dim.count - 1)} - {dim.count}:
            dims = (*ndl.dims[:position], structs.replace(dim, count=count), *ndl.dims[position + 1 :])
            changed = tuple(structs.replace(n, dims=dims) if n is ndl else n for n in CONV.ndls)
            assert task_problems(structs.replace(CONV, ndls=changed), CONFIG), (dim, count)


@pytest.mark.parametrize("agent", [Agent.DEDR, Agent.DEWR, Agent.DEBR, Agent.DEQW])
def test_dims_of_one_loop_must_agree_about_its_stride(agent):
    ndl = CONV.ndl(agent)
    twice = [d.loop for d in ndl.dims if d.kind.name != "S" and d.stride]
    for position, dim in enumerate(ndl.dims):
        planar = agent is Agent.DEDR and CONV.loops[dim.loop].tag in (Tag.FLAT, Tag.KERNEL_COLUMN)
        if twice.count(dim.loop) < 2 or planar:
            continue
        dims = (*ndl.dims[:position], structs.replace(dim, stride=dim.stride + 8), *ndl.dims[position + 1 :])
        changed = tuple(structs.replace(n, dims=dims) if n is ndl else n for n in CONV.ndls)
        assert task_problems(structs.replace(CONV, ndls=changed), CONFIG), dim


def test_reduction_length_is_limited():
    loops = tuple(structs.replace(loop, extent=7282) if loop.tag is Tag.IN_CHANNEL else loop for loop in CONV.loops)
    assert "reduction over 65538" in task_problems(structs.replace(CONV, loops=loops), CONFIG)[0]


def test_transfer_limits():
    assert transfer_problems(load(0, 0, (1 << 24) - 1).descriptor, CONFIG) == []
    assert transfer_problems(load(0, 0, 1 << 24).descriptor, CONFIG)
    assert transfer_problems(load(1 << 24, 0, 1).descriptor, CONFIG)
