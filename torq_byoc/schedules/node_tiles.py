"""The tiles of a node: output boxes, their division between slices, and the operand regions read back from TIR."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Mapping
from typing import Any

from torq_byoc.errors import InternalError
from torq_byoc.kernels.conv_tile import conv_axes
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Region
from torq_byoc.kernels.portion import Portion
from torq_byoc.kernels.windows import window_axes
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.regions import Transfer, read_back
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.tensor_expressions import define, defined_ops
from torq_byoc.schedules.tiles import Tile, hull, output_regions, portions_of, split_between_slices
from torq_byoc.schedules.tir_schedule import apply_decision

WINDOW_OPS = ("conv2d", "maxpool", "sumpool")
ENTRY_OPS = ("act", "scale_rows")
_CACHE_ENTRIES = 4096
_read_back: dict[Hashable, tuple[Transfer, ...]] = {}


def scheduled_function(graph: OpGraph, node: Node, decision: NodeDecision) -> Any:
    """The TIR function of a node with a decision applied (a ``tvm.s_tir.Schedule``): for dumps and checks."""
    return apply_decision(define(graph, node).prim_func(), decision)


def transfers(graph: OpGraph, node: Node, decision: NodeDecision) -> tuple[Transfer, ...]:
    """Loads and stores of a node's scheduled function; remembered, since many nodes are alike.

    Loop order, slice split and buffering do not change the regions of a tile, so only its extents count and those
    of the portion in which it is computed.
    """
    key = (signature(graph, node), decision.tile, decision.portion)
    if key not in _read_back:
        if len(_read_back) >= _CACHE_ENTRIES:
            _read_back.clear()
        _read_back[key] = read_back(scheduled_function(graph, node, decision))
    return _read_back[key]


def tiles_of(graph: OpGraph, node: Node, model: NodeModel, decision: NodeDecision) -> tuple[Tile, ...]:
    """The tiles of a node in execution order.

    Raises:
        InternalError: the regions of the TIR function do not cover what the kernel reads.
    """
    axis = decision.split_axis
    step = 0 if axis is None else model.steps[axis]
    loads = _loads(model, decision)
    tiles = []
    portions = portions_of(model.reduction, decision.portion) if decision.portion else (None,)
    for output, portion in itertools.product(output_regions(model.shape, decision), portions):
        inputs = model.input_regions(output, portion)
        if loads is not None:
            needed, box = inputs, _loop_box(output, portion)
            inputs = tuple(
                settle(graph, node, position, _read(loads, position, box, decision, region))
                for position, region in zip(model.inputs, needed, strict=True)
            )
            _check_cover(node, output, inputs, needed)
        tiles.append(Tile(output, inputs, split_between_slices(output, axis, step, model.config.slices), portion))
    return tuple(tiles)


def _loop_box(output: Region, portion: Portion | None) -> Region:
    """A tile over the output axes and, when it is computed in portions, the reduction axes behind them."""
    if portion is None:
        return output
    return Region(output.start + portion.box.start, output.extent + portion.box.extent)


def box_inputs(model: NodeModel, output: Region) -> tuple[Region, ...]:
    """What any box of the output reads of each tensor input: what the kernel says, and what is read back from TIR.

    Remembered, since the bands of groups that are alike ask for the same boxes.
    """
    if output not in model.boxes:
        model.boxes[output] = _box_inputs(model, output)
    return model.boxes[output]


def _box_inputs(model: NodeModel, output: Region) -> tuple[Region, ...]:
    """What a box reads.

    The function is scheduled with the smallest tiles along the axes that the box does not span; windows move with
    their outputs, so the tiles at the box's ends bound what it reads.  (An operand of a concatenation can lie between
    those ends; the kernel's region holds it.)
    """
    needed = model.input_regions(output)
    unit = tuple(
        whole if extent == whole or step == 0 else min(step, whole)
        for extent, whole, step in zip(output.extent, model.shape, model.steps, strict=True)
    )
    decision = NodeDecision(unit, tuple(range(len(unit))), None, 1)
    loads = _loads(model, decision)
    if loads is None:
        return needed
    inputs, tiles = [], _end_tiles(output, unit)
    for position, region in zip(model.inputs, needed, strict=True):
        ends = (_read(loads, position, tile, decision, region) for tile in tiles)
        read = settle(model.graph, model.node, position, functools.reduce(hull, ends))
        inputs.append(hull(region, read))
    return tuple(inputs)


def _end_tiles(output: Region, unit: tuple[int, ...]) -> tuple[Region, ...]:
    """The first and the last of the small tiles that make a box; one where that is all of it."""
    axes = list(zip(output.start, output.extent, unit, strict=True))
    first = Region(output.start, tuple([min(size, extent) for _, extent, size in axes]))
    if first == output:
        return (first,)
    starts = tuple([start + (extent - 1) // size * size for start, extent, size in axes])
    ends = zip(axes, starts, strict=True)
    return first, Region(starts, tuple([start + extent - last for (start, extent, _), last in ends]))


def _loads(model: NodeModel, decision: NodeDecision) -> Mapping[str, Transfer] | None:
    """The loads by buffer name; None for plug-in operators that have no tensor expression."""
    if model.node.op not in defined_ops():
        return None
    key = (decision.tile, decision.portion)
    if key not in model.loads:
        found = transfers(model.graph, model.node, decision)
        model.loads[key] = {load.buffer: load for load in found if load.kind == "load"}
    return model.loads[key]


def _read(
    loads: Mapping[str, Transfer], position: int, box: Region, decision: NodeDecision, kernel_region: Region
) -> Region:
    """What a tile loads of an input; the kernel's own region when TIR reads none of it.

    TIR drops a read whose value cannot matter: both clip bounds the same code, a weight of 0.  The kernel's
    loops walk the operand nevertheless.
    """
    load = loads.get(f"input{position}")
    return kernel_region if load is None else load.region(box, decision.tile + decision.portion)


def settle(graph: OpGraph, node: Node, position: int, region: Region) -> Region:
    """A region of an input as the machine loads it.

    The lanes of a window operator walk a plane of at least one element.  Bias/scale entries are loaded
    whole, whichever half is used.  For other operators a tile that reads nothing along one axis reads
    nothing at all.
    """
    if node.op in WINDOW_OPS and position == 0:
        return _window(graph, node, region)
    if not region.size:
        return Region((0,) * len(region.start), (0,) * len(region.start))
    if node.op in ENTRY_OPS and position == 1:
        width = graph.tensors[node.inputs[1]].shape[-1]
        return Region((*region.start[:-1], 0), (*region.extent[:-1], width))
    return region


def _window(graph: OpGraph, node: Node, region: Region) -> Region:
    """A window's region from a stride phase on; of a folded stride's phases only whole ones can be read."""
    shape = graph.tensors[node.inputs[0]].shape
    axes = conv_axes(graph, node) if node.op == "conv2d" else window_axes(graph, node, node.attrs["kernel"])
    bounds = list(zip(region.start, region.extent, strict=True))
    for axis, window in zip((2, 3), axes, strict=True):
        start, extent = bounds[axis]
        first = min(start, shape[axis] - 1)
        end = max(start + extent, first + 1)
        first -= first % window.stride
        if window.is_folded:
            end = min(-(-end // window.stride) * window.stride, shape[axis])
        bounds[axis] = (first, end - first)
    return Region(tuple(first for first, _ in bounds), tuple(extent for _, extent in bounds))


def _check_cover(node: Node, output: Region, loaded: tuple[Region, ...], needed: tuple[Region, ...]) -> None:
    for have, want in zip(loaded, needed, strict=True):
        bounds = zip(have.start, have.extent, want.start, want.extent, strict=True)
        if any(a > b or a + m < b + n for a, m, b, n in bounds):
            raise InternalError(
                f"the TIR function of {node.op} loads less than its kernel reads",
                where=f"node {node.name!r}, tile {output.start} + {output.extent}",
                why=f"loads {have.start} + {have.extent}, the kernel reads {want.start} + {want.extent}",
                remedy="report it with the model; the tensor expression and the kernel disagree",
            )
