"""Convolutions with lanes along the filters: the same results as a plane walk, in every cut; when they are chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.infra import CONFIG, node_cycles, one_node, reference, run, run_scalar, split, whole
from tests.kernels.test_conv2d import Case
from torq_byoc.kernels.conv2d import Conv2d
from torq_byoc.kernels.conv_filter_lanes import LANES, PIXELS, prefers_filter_lanes
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType

INT8, BF16 = (DType.INT8,) * 3, (DType.BF16,) * 3

GEOMETRIES = {
    "patches": dict(x=(2, 3, 16, 24), o=70, kernel=(8, 8), strides=(8, 8)),
    "overlapping frames": dict(x=(1, 1, 1, 203), o=40, kernel=(1, 19), strides=(1, 8)),
    "a frame that ends inside a stride": dict(x=(1, 2, 1, 61), o=9, kernel=(1, 5), strides=(1, 7)),
    "dilated": dict(x=(1, 2, 9, 40), o=5, kernel=(3, 3), strides=(3, 4), dilations=(2, 3)),
    "one pixel": dict(x=(1, 4, 6, 5), o=130, kernel=(6, 5), strides=(4, 4)),
}


@pytest.mark.parametrize("types", [INT8, BF16], ids=["int8", "bf16"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_cut(name: str, types: tuple[DType, DType, DType]) -> None:
    case = Case(**GEOMETRIES[name], types=types, lanes=LANES)
    graph, shape, steps = case.graph, case.shape, case.steps
    assert Conv2d().unsupported(graph, case.node, CONFIG) is None
    case.check(reference(graph, [case.x, case.w]))
    case.check(run(graph, [case.x], whole(shape)))
    case.check(run_scalar(graph, [case.x], whole(shape)))
    n, o, height, width = shape
    cuts = [
        split(shape, (n, o, -(-height // 2), width), 1, steps[1]),
        split(shape, (1, steps[1], height, width), 2, 1),
        split(shape, (n, o, height, PIXELS), 3, steps[3]),
    ]
    for cut in cuts:
        case.check(run(graph, [case.x], cut))
        case.check(run(graph, [case.x], cut, whole_inputs=True))
    case.check(run(graph, [case.x], cuts[0], output_phases=(2, 2)))


def test_needs_one_group_no_border_and_one_type() -> None:
    for change in (
        dict(pads=(0, 1, 0, 1)),
        dict(groups=2),
        dict(types=(DType.INT16, DType.INT8, DType.INT16)),
    ):
        case = Case(x=(1, 2, 8, 16), o=8, kernel=(1, 4), strides=(1, 4), **change)
        node = replace(case.node, attrs={**case.node.attrs, "lanes": LANES})
        assert "lanes" in str(Conv2d().unsupported(case.graph, node, CONFIG))


@pytest.mark.parametrize(
    ("geometry", "chosen"),
    [
        (dict(x=(1, 1, 1, 4096), o=96, kernel=(1, 127), strides=(1, 64), types=BF16), True),
        (dict(x=(1, 3, 64, 64), o=64, kernel=(16, 16), strides=(16, 16)), True),
        (dict(x=(1, 3, 64, 64), o=8, kernel=(4, 4), strides=(4, 4)), False),
        (dict(x=(1, 3, 32, 32), o=64, kernel=(3, 3), strides=(2, 2)), False),
        (dict(x=(1, 3, 32, 32), o=64, kernel=(7, 7), strides=(4, 4), pads=(3, 3, 3, 3)), False),
    ],
)
def test_chosen_for_large_strides_where_it_is_as_fast(geometry: dict, chosen: bool) -> None:
    case = Case(**geometry)
    assert prefers_filter_lanes(case.graph, case.node, CONFIG) is chosen


def test_cycles_of_overlapping_frames() -> None:
    """Nine vectors of 32 filters by 313 groups of four frames by 127 taps, whose pixels come four taps a load."""
    x, w = (1, 1, 1, 80_000), np.zeros((288, 1, 1, 127), DType.BF16.numpy)
    attrs = {"strides": (1, 64), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1, "pad_value": 0, "lanes": LANES}
    rescale = Rescale(np.zeros(288, np.float32), axis=1)
    graph = one_node("conv2d", [(x, DType.BF16), w], (1, 288, 1, 1249), DType.BF16, attrs, rescale)
    assert node_cycles(graph) == 9 * (312 * 128 + 127)
