"""From edits of a known record to another record: what the edits do not settle is left to the analytic search.

A complete record fixes everything, so an edit alone would often not fit beside the rest.  A draft therefore opens what
an edit touches: nodes of groups that change, nodes beside a tensor that moves in or out of LRAM, and tensors that such
nodes make or read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from torq_byoc.explore.tuning.subject import Subject
from torq_byoc.schedules import candidates
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeOverride


class Base:
    """A complete record, by positions in its graph.

    Args:
        subject: the graph.
        record: as ``Schedule.record`` gives it.
    """

    def __init__(self, subject: Subject, record: DecisionRecord) -> None:
        self.subject, self.record = subject, record

    @cached_property
    def groups(self) -> Mapping[tuple[int, int], GroupDecision]:
        """Groups by their ends."""
        position = self.subject.position
        return {(position[g.nodes[0]], position[g.nodes[-1]]): g for g in self.record.groups or ()}

    @cached_property
    def joined(self) -> Mapping[int, bool]:
        """Boundaries inside groups."""
        return {index: True for first, last in self.groups for index in range(first, last)}

    @cached_property
    def resident(self) -> Mapping[str, bool]:
        """For every storage, whether it lies in LRAM."""
        return {storage.name: self.record.resident.get(storage.name, False) for storage in self.subject.storages}


class Draft:
    """Edits of a base, collected one by one.

    Attributes:
        fields: node -> fields of its decision that are fixed; ``split_axis`` as in ``NodeOverride``.
        extents: node -> axis -> extent of its tile; the other axes keep the base's.
        flipped: storages that move in or out of LRAM.
        toggled: boundaries that are joined or cut.
        bands: last node of a group -> how it is cut: ``axis``, ``buffers``, ``finer`` (positions in the list of sizes).
    """

    def __init__(self, base: Base) -> None:
        self.base, self.subject = base, base.subject
        self.fields: dict[int, dict[str, Any]] = {}
        self.extents: dict[int, dict[int, int]] = {}
        self.flipped: set[str] = set()
        self.toggled: set[int] = set()
        self.bands: dict[int, dict[str, int]] = {}

    def record(self) -> DecisionRecord:
        """The record: edits, the base where nothing is touched, and nothing about the rest."""
        groups = {run: self._group(*run) for run in self._runs()}
        kept = {run: group for run, group in groups.items() if group is not None}
        regrouped = _members(set(self.base.groups) ^ set(kept))
        return DecisionRecord(
            self._nodes(_members(kept), regrouped),
            self._residency(regrouped),
            tuple(kept.values()),
            self.base.record.slices,
        )

    def _runs(self) -> list[tuple[int, int]]:
        boundaries = {*self.base.joined, *self.toggled}
        return self.subject.split_runs(
            {index: self.base.joined.get(index, False) != (index in self.toggled) for index in boundaries}
        )

    @cached_property
    def _moved(self) -> set[int]:
        """Nodes beside a tensor that moves in or out of LRAM."""
        return {
            index
            for storage in self.subject.storages
            if storage.name in self.flipped
            for index in range(storage.first, storage.last + 1)
        }

    def _group(self, first: int, last: int) -> GroupDecision | None:
        known = self.base.groups.get((first, last))
        if known is None or self._moved & set(range(first, last + 1)):
            resident = {name: value != (name in self.flipped) for name, value in self.base.resident.items()}
            choice = self.subject.best_group(first, last, resident)
            known = choice.decision if choice else None
        if known is None:
            return None
        splits = [
            self.fields.get(index, {}).get("split_axis", (axis,))[0]
            for index, axis in enumerate(known.split_axes, start=first)
        ]
        model = self.subject.models[known.nodes[-1]]
        return banded(replace(known, split_axes=tuple(splits)), self.bands.get(last, {}), model)

    def _nodes(self, grouped: set[int], regrouped: set[int]) -> dict[str, NodeOverride]:
        found = {}
        for index, node in enumerate(self.subject.nodes):
            known = self.base.record.nodes.get(node.name)
            edited = self._edited(index, known)
            if index in grouped:
                continue
            if edited is not None:
                found[node.name] = edited
            elif known is not None and index not in regrouped | self._moved:
                found[node.name] = known
        return found

    def _edited(self, index: int, known: NodeOverride | None) -> NodeOverride | None:
        fields = dict(self.fields.get(index, {}))
        if index in self.extents and known is not None and known.tile is not None:
            changed = self.extents[index]
            fields["tile"] = tuple(changed.get(axis, size) for axis, size in enumerate(known.tile))
        return NodeOverride(**fields) if fields else None

    def _residency(self, regrouped: set[int]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for storage in self.subject.storages:
            touched = any(storage.first <= index <= storage.last for index in regrouped)
            if storage.name in self.flipped or not touched:
                value = self.base.resident[storage.name] != (storage.name in self.flipped)
                found |= dict.fromkeys(storage.tensors, value)
        return found


def banded(group: GroupDecision, edits: Mapping[str, int], last: NodeModel) -> GroupDecision:
    """A group cut in another way.

    Args:
        group: the group.
        edits: see ``Draft.bands``.
        last: model of its last node.
    """
    axis, size = edits.get("axis", group.axis), group.size
    step = max(last.steps[axis], 1)
    if axis != group.axis:
        count = math.ceil(last.shape[group.axis] / group.size)
        size = step * math.ceil(last.shape[axis] / step / count)
    if "finer" in edits:
        sizes = candidates.axis_extents(last.shape[axis], last.steps[axis])
        place = sum(known > size for known in sizes) + edits["finer"]
        size = sizes[min(max(place, 0), len(sizes) - 1)]
    size = min(size, last.shape[axis])
    parts = group.parts if axis == group.axis else None  # bands along another axis may have to hold all parts anyway
    return replace(group, axis=axis, size=size, buffers=edits.get("buffers", group.buffers), parts=parts)


def _members(runs: set[tuple[int, int]] | Mapping[tuple[int, int], GroupDecision]) -> set[int]:
    return {index for first, last in runs for index in range(first, last + 1)}
