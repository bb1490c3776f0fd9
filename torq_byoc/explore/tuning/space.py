"""The records within reach of a known one, as points: one option number for every knob."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from torq_byoc.explore.tuning.draft import Base, Draft
from torq_byoc.explore.tuning.knobs import BandKnob, BoundaryKnob, ExtentKnob, FieldKnob, Knob, ResidencyKnob
from torq_byoc.explore.tuning.subject import Subject
from torq_byoc.schedules import candidates
from torq_byoc.schedules.record import DecisionRecord, NodeOverride

_T = TypeVar("_T")

Point = tuple[int, ...]
"""An option of every knob of a space; all 0 is the base itself."""

NEAR = 2
"""Extents, sizes and portions on either side of the base's that are options."""
LEAST_SHARE = 0.002
"""Part of the estimated time that knobs of cheap nodes count for, so that none is out of reach."""


class Space:
    """All points around a base.

    Args:
        subject: the graph.
        record: the base, complete.
        estimates: node name -> cycles of its part of the base's schedule.
    """

    def __init__(self, subject: Subject, record: DecisionRecord, estimates: Mapping[str, float]) -> None:
        self.subject, self.base = subject, Base(subject, record)
        self._estimates = [estimates.get(node.name, 0.0) for node in subject.nodes]

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """Everything that may vary."""
        return (*self._node_knobs(), *self._residency_knobs(), *self._boundary_knobs(), *self._band_knobs())

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """For every knob the cycles of the nodes it concerns: where a change may matter."""
        least = LEAST_SHARE * sum(self._estimates) + 1.0
        return tuple(least + sum(self._estimates[index] for index in knob.nodes) for knob in self.knobs)

    @property
    def origin(self) -> Point:
        """The base."""
        return (0,) * len(self.knobs)

    def record(self, point: Point) -> DecisionRecord:
        """A point as a decision record; what it leaves open the analytic search decides."""
        draft = Draft(self.base)
        for knob, option in zip(self.knobs, point, strict=True):
            if option:
                knob.apply(draft, option)
        return draft.record()

    def changes(self, point: Point, since: Point) -> tuple[str, ...]:
        """In words, how a point differs from another one."""
        return tuple(
            f"{knob.subject}: {knob.setting(option) if option else knob.unset}"
            for knob, option, before in zip(self.knobs, point, since, strict=True)
            if option != before
        )

    def _alike(self) -> Iterator[tuple[tuple[int, ...], NodeOverride | None]]:
        """Nodes of equal signature and equal decision, and that decision: they are changed together."""
        decisions = [self.base.record.nodes.get(node.name) for node in self.subject.nodes]
        classes: dict[Hashable, list[int]] = defaultdict(list)
        for index, decision in enumerate(decisions):
            classes[(self.subject.signatures[index], decision)].append(index)
        yield from ((tuple(members), decisions[members[0]]) for members in classes.values())

    def _name(self, members: tuple[int, ...]) -> str:
        others = len(members) - 1
        return self.subject.nodes[members[0]].name + (f" and {others} alike" if others else "")

    def _node_knobs(self) -> Iterator[Knob]:
        for members, decision in self._alike():
            name, model = self._name(members), self.subject.models[self.subject.nodes[members[0]].name]
            free = [axis for axis, step in enumerate(model.steps) if step and model.shape[axis] > step]
            tile = model.shape if decision is None or decision.tile is None else decision.tile
            if decision is not None:
                for axis in free:
                    extents = _near(candidates.axis_extents(model.shape[axis], model.steps[axis]), tile[axis])
                    if extents:
                        yield ExtentKnob(name, members, "tile", axis, extents)
            known = decision or NodeOverride()
            options: dict[str, tuple[Any, ...]] = {"split_axis": self._splits(members[0], free, known)}
            if decision is not None:
                options["order"] = tuple(order for order in _orders(len(tile), free) if order != known.order)
                options["buffers"] = () if known.buffers is None or not free else (3 - known.buffers,)
            if known.portion:
                portions = candidates.portions(model.reduction, candidates.MAX_TILES)
                options["portion"] = ((), *_near(portions, known.portion))
            yield from (FieldKnob(name, members, kind, values) for kind, values in options.items() if values)

    def _splits(self, index: int, free: list[int], known: NodeOverride) -> tuple[tuple[int | None], ...]:
        """Axes, other than the present one, along which the slices could share a node's tiles."""
        present = known.split_axis
        for (first, last), group in self.base.groups.items():
            if first <= index <= last:
                present = (group.split_axes[index - first],)
        slices = self.subject.models[self.subject.nodes[index].name].config.slices
        axes: list[int | None] = [*free, None] if free and slices > 1 else []
        return tuple((axis,) for axis in axes if (axis,) != present)

    def _residency_knobs(self) -> Iterator[Knob]:
        for storage in self.subject.storages:
            inside = any(first <= storage.first and storage.last <= last for first, last in self.base.groups)
            if not inside and storage.nbytes <= self.subject.config.lram_usable:
                nodes = tuple(range(storage.first, storage.last + 1))
                yield ResidencyKnob(storage.name, nodes, "residency", self.base.resident[storage.name])

    def _boundary_knobs(self) -> Iterator[Knob]:
        for index, possible in enumerate(self.subject.spannable):
            joined = self.base.joined.get(index, False)
            if possible or joined:
                name = self.subject.nodes[index].name
                yield BoundaryKnob(name, (index, index + 1), "group", (index,), joined)
        for first, last in self.base.groups:
            if last - first > 1:
                name = self.subject.nodes[first].name
                yield BoundaryKnob(name, tuple(range(first, last + 1)), "group", tuple(range(first, last)), True)

    def _band_knobs(self) -> Iterator[Knob]:
        for (first, last), group in self.base.groups.items():
            name, model = f"group up to {group.nodes[-1]}", self.subject.models[group.nodes[-1]]
            nodes = tuple(range(first, last + 1))
            axes = [axis for axis, step in enumerate(model.steps) if step and model.shape[axis] > step]
            yield BandKnob(name, nodes, "bands", "finer", tuple(d for d in range(-NEAR, NEAR + 1) if d))
            yield BandKnob(name, nodes, "bands", "buffers", (3 - group.buffers,))
            if others := tuple(axis for axis in axes if axis not in (group.axis, group.outer)):
                yield BandKnob(name, nodes, "bands", "axis", others)


def _near(values: list[_T], present: _T) -> tuple[_T, ...]:
    """The values around the present one in an ordered list, and its two ends."""
    if present not in values:
        return tuple(values[: 2 * NEAR])
    place = values.index(present)
    around = [values[0], *values[max(0, place - NEAR) : place + NEAR + 1], values[-1]]
    return tuple(value for value in dict.fromkeys(around) if value != present)


def _orders(rank: int, free: list[int]) -> list[tuple[int, ...]]:
    """Loop orders that put one axis that may be cut outermost, or innermost."""
    found: dict[tuple[int, ...], None] = {}
    for axis in free:
        rest = tuple(other for other in range(rank) if other != axis)
        found |= {(axis, *rest): None, (*rest, axis): None}
    return list(found)
