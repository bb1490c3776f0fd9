"""What is wrong with a slice task: where it works, or what it computes.

A task that computes the right thing in the wrong place is a fault of tiling: loops, descriptors, borders, the window of
its results, partial sums.  One that computes something else in the right place is a fault of code generation:
operations, rescaling, clip, zero points, tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.tile_values import element_addresses
from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.footprint import task_footprint
from torq_byoc.npu_model.isa import ActConfig, AluConfig, Plane, SliceTask

_PARTS = {
    "act.shift": (Stage.CODE_GENERATION, "shift wrong"),
    "act.zero_point": (Stage.CODE_GENERATION, "zero point wrong"),
    "act.clip_min": (Stage.CODE_GENERATION, "clip wrong"),
    "act.clip_max": (Stage.CODE_GENERATION, "clip wrong"),
    "act.rounding": (Stage.CODE_GENERATION, "rounding wrong"),
    "act.mode": (Stage.CODE_GENERATION, "operation wrong"),
    "act.sum_bits": (Stage.CODE_GENERATION, "width of sums wrong"),
    "alu.op0": (Stage.CODE_GENERATION, "operation wrong"),
    "alu.op1": (Stage.CODE_GENERATION, "operation wrong"),
    "alu.clear": (Stage.TILING, "partial sums wrong"),
    "alu.output": (Stage.TILING, "partial sums wrong"),
    "table": (Stage.CODE_GENERATION, "table wrong"),
    "fill_value": (Stage.CODE_GENERATION, "fill value wrong"),
    "plane.pad_value": (Stage.CODE_GENERATION, "zero point of the border wrong"),
    "type": (Stage.CODE_GENERATION, "element type wrong"),
}
"""What a difference in a field means; all others are about places and extents."""
_PLACES = (Stage.TILING, "works in another region")


@dataclass(frozen=True)
class TaskFault:
    """A difference between a task and the one that is meant.

    Attributes:
        stage, cause: as ``deviation.Deviation`` has them.
        detail: the field, what it says and what it should.
    """

    stage: Stage
    cause: str
    detail: str


def task_fault(found: Sequence[SliceTask], meant: Sequence[SliceTask]) -> TaskFault | None:
    """The first difference between the tasks that ran and those that were meant; None when they are the same."""
    if len(found) != len(meant):
        return TaskFault(*_PLACES, f"{len(found)} tasks where {len(meant)} are meant")
    for number, pair in enumerate(zip(found, meant, strict=True)):
        for field, actual, wanted in _differences(*pair):
            stage, cause = _PARTS.get(field, _PLACES)
            return TaskFault(stage, cause, f"task {number}: {field} is {_short(actual)}, meant is {_short(wanted)}")
    return None


def is_misplaced(tasks: Sequence[SliceTask], output: Placement, region: Region) -> bool:
    """Whether tasks write anything but a region of their output's tile."""
    places = element_addresses(output, region).reshape(-1)
    meant = intervals.merge(places, places + output.dtype.size) if places.size else intervals.EMPTY
    written = intervals.union(task_footprint(task).writes for task in tasks)
    return bool(intervals.first_outside(written, meant) or intervals.first_outside(meant, written))


def _differences(found: SliceTask, meant: SliceTask) -> Iterator[tuple[str, object, object]]:
    """Fields in which two tasks differ: those of structure first."""
    for name in ("loops", "vector", "weights"):
        if getattr(found, name) != getattr(meant, name):
            yield name, getattr(found, name), getattr(meant, name)
    yield from _descriptor_differences(found, meant)
    for group, kind in (("plane", Plane), ("window", None), ("act", ActConfig), ("alu", AluConfig)):
        left, right = getattr(found, group), getattr(meant, group)
        if left != right:
            yield from _field_differences(group, left, right) if kind and left and right else ((group, left, right),)
    for name in ("table", "fill_value"):
        if getattr(found, name) != getattr(meant, name):
            yield name, getattr(found, name), getattr(meant, name)


def _descriptor_differences(found: SliceTask, meant: SliceTask) -> Iterator[tuple[str, object, object]]:
    wanted = {ndl.agent: ndl for ndl in meant.ndls}
    for ndl in found.ndls:
        other = wanted.pop(ndl.agent, None)
        if other is None:
            yield ndl.agent.name, ndl, None
        elif ndl != other:
            if (ndl.base, ndl.dims) == (other.base, other.dims):
                yield "type", ndl.dtype.value, other.dtype.value
            else:
                field = "base" if ndl.base != other.base else "dims"
                yield f"{ndl.agent.name}.{field}", getattr(ndl, field), getattr(other, field)
    for agent, other in wanted.items():
        yield agent.name, None, other


def _field_differences(group: str, left: msgspec.Struct, right: msgspec.Struct) -> Iterator[tuple[str, object, object]]:
    for name in left.__struct_fields__:
        if getattr(left, name) != getattr(right, name):
            yield f"{group}.{name}", getattr(left, name), getattr(right, name)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
