"""Decisions as plain data: what a schedule is made of, how a person reads it, edits it and feeds it back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from torq_byoc.files import parse_json
from torq_byoc.schedules.record_checks import expect, integer, record_error, reject_unknown

FORMAT = 1
_FIELDS = ("tile", "order", "split_axis", "buffers", "portion")
_GROUP_FIELDS = ("nodes", "axis", "size", "split_axes", "buffers")
_PART_FIELDS = ("first", "last", "axis", "size")


class NodeDecision(msgspec.Struct, frozen=True, gc=False):
    """How one node is cut and run.

    Attributes:
        tile: extent of a tile along every output axis (the last tile of an axis may be smaller).
        order: all output axes, outermost loop first; an operand whose region does not change from one
            tile to the next stays in LRAM, so the order says which operand is stationary.
        split_axis: output axis along which a tile is divided between the slices; None runs it on one.
        buffers: tiles of an operand in flight: 2 overlaps transfers with compute, 1 does not.
        portion: extent of a portion along every axis of the reduction, when each tile is computed portion by
            portion with its sums in PRAM (``kernels.portion``); empty when reductions are whole.
    """

    tile: tuple[int, ...]
    order: tuple[int, ...]
    split_axis: int | None
    buffers: int
    portion: tuple[int, ...] = ()

    def to_override(self) -> NodeOverride:
        """The same decision with every field fixed."""
        return NodeOverride(self.tile, self.order, (self.split_axis,), self.buffers, self.portion)

    def __str__(self) -> str:
        """As a person reads it."""
        split = "one slice" if self.split_axis is None else f"slices along axis {self.split_axis}"
        portions = f", portions {_extents(self.portion)}" if self.portion else ""
        return f"tile {_extents(self.tile)}, loops {_axes(self.order)}, {split}, {self.buffers} buffers{portions}"


@dataclass(frozen=True)
class GroupParts:
    """Neighbouring nodes of a group that go through every band part by part.

    What they pass on to one another exists one part at a time; the parts of the last one's result are put together.

    Attributes:
        first, last: positions of the nodes in the group.
        axis: axis along which the last one's result is cut into parts.
        size: extent of a part.
        keep: whether the weights of all parts stay in LRAM; otherwise each band loads them anew.
    """

    first: int
    last: int
    axis: int
    size: int
    keep: bool = False

    def has(self, position: int) -> bool:
        """Whether the node at a position is one of them."""
        return self.first <= position <= self.last

    def __str__(self) -> str:
        """As a person reads it."""
        kept = ", weights kept" if self.keep else ""
        return f"nodes {self.first} to {self.last} in parts of {self.size} along axis {self.axis}{kept}"


@dataclass(frozen=True)
class GroupDecision:
    """Neighbouring nodes that run band by band, so that what they pass on stays in LRAM.

    Attributes:
        nodes: names in execution order; they follow one another in the graph.
        axis: axis along which the last node's output is cut into bands.
        size: extent of a band.
        split_axes: for every node the axis along which the slices share its part of a band; None for one slice.
        buffers: bands of an operand in flight: 2 overlaps transfers with compute, 1 does not.
        outer: axis of which every step has such bands of its own; None for none.
        parts: nodes that go through a band part by part; None for none.
    """

    nodes: tuple[str, ...]
    axis: int
    size: int
    split_axes: tuple[int | None, ...]
    buffers: int
    outer: int | None = None
    parts: GroupParts | None = None

    def __str__(self) -> str:
        """As a person reads it."""
        outer = "" if self.outer is None else f" for every step of axis {self.outer}"
        parts = "" if self.parts is None else f", {self.parts}"
        return (
            f"bands of {self.size} along axis {self.axis}{outer} of {' -> '.join(self.nodes)}, "
            f"slices along axes {_axes(self.split_axes)}, {self.buffers} buffers{parts}"
        )


def _extents(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values)) or "scalar"


def _axes(values: tuple[int | None, ...]) -> str:
    """Axes in order; "-" where there is none."""
    return " ".join("-" if value is None else str(value) for value in values) or "-"


@dataclass(frozen=True)
class NodeOverride:
    """The fields of a node's decision that are fixed; None leaves a field to the search.

    ``split_axis`` is a one-element tuple when fixed, since None is one of its values.
    """

    tile: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    split_axis: tuple[int | None] | None = None
    buffers: int | None = None
    portion: tuple[int, ...] | None = None


@dataclass(frozen=True)
class DecisionRecord:
    """Everything that determines the schedule of a graph, or the part of it that a person fixes.

    Attributes:
        nodes: node name -> fixed fields.
        resident: tensor name -> True (stays in LRAM from producer to last consumer) or False (goes
            through XRAM); tensors not named are left to the search.
        groups: all fused groups; None leaves them to the search.
        slices: node name -> slices that it may use; nodes not named may use all.
    """

    nodes: Mapping[str, NodeOverride] = field(default_factory=dict)
    resident: Mapping[str, bool] = field(default_factory=dict)
    groups: tuple[GroupDecision, ...] | None = None
    slices: Mapping[str, int] = field(default_factory=dict)

    def restricted_to(self, nodes: Collection[str], tensors: Collection[str]) -> DecisionRecord:
        """The entries about these nodes and tensors: what concerns one partition of a model."""
        return DecisionRecord(
            {name: override for name, override in self.nodes.items() if name in nodes},
            {name: value for name, value in self.resident.items() if name in tensors},
            None if self.groups is None else tuple(g for g in self.groups if set(g.nodes) <= set(nodes)),
            {name: count for name, count in self.slices.items() if name in nodes},
        )

    @classmethod
    def union(cls, records: Iterable[DecisionRecord]) -> DecisionRecord:
        """The entries of records about different nodes and tensors, such as those of a model's partitions."""
        nodes: dict[str, NodeOverride] = {}
        resident: dict[str, bool] = {}
        slices: dict[str, int] = {}
        groups: tuple[GroupDecision, ...] = ()
        for record in records:
            nodes.update(record.nodes)
            resident.update(record.resident)
            slices.update(record.slices)
            groups += record.groups or ()
        return cls(nodes, resident, groups, slices)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form, keys sorted; fields that are not fixed are left out."""
        nodes = {name: _node_to_json(self.nodes[name]) for name in sorted(self.nodes)}
        resident = {tensor: self.resident[tensor] for tensor in sorted(self.resident)}
        data: dict[str, Any] = {"format": FORMAT, "nodes": nodes, "resident": resident}
        if self.groups is not None:
            data["groups"] = [_group_to_json(group) for group in self.groups]
        if self.slices:
            data["slices"] = {name: self.slices[name] for name in sorted(self.slices)}
        return data

    def dumps(self) -> str:
        """The record as text, one node a line so that it can be edited and compared."""
        data = self.to_json()
        blocks = []
        for key in [key for key in ("nodes", "resident", "slices") if key in data]:
            lines = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in data[key].items()]
            blocks.append(f'  "{key}": {{\n' + ",\n".join(lines) + "\n  }" if lines else f'  "{key}": {{}}')
        if "groups" in data:
            lines = [f"    {json.dumps(group)}" for group in data["groups"]]
            blocks.append('  "groups": [\n' + ",\n".join(lines) + "\n  ]" if lines else '  "groups": []')
        return f'{{\n  "format": {FORMAT},\n' + ",\n".join(blocks) + "\n}\n"

    @classmethod
    def from_json(cls, data: Any) -> DecisionRecord:
        """Read the JSON-able form, whole or partial.

        Raises:
            ScheduleError: an unknown key or a value of the wrong kind; names the node and the field.
        """
        root = expect(data, dict, "record", "an object")
        reject_unknown(root, ("format", "nodes", "resident", "groups", "slices"), "record")
        if type(root.get("format", FORMAT)) is not int or root.get("format", FORMAT) != FORMAT:
            raise record_error("format", f"this version reads format {FORMAT}, the record is format {root['format']!r}")
        nodes = expect(root.get("nodes", {}), dict, "nodes", "an object keyed by node name")
        resident = expect(root.get("resident", {}), dict, "resident", "an object keyed by tensor name")
        for name, value in resident.items():
            expect(value, bool, f"resident {name!r}", "true or false")
        slices = expect(root.get("slices", {}), dict, "slices", "an object keyed by node name")
        for name, count in slices.items():
            integer(count, f"slices of {name!r}")
        groups = None
        if "groups" in root:
            entries = expect(root["groups"], list, "groups", "a list")
            groups = tuple(_group_from_json(index, entry) for index, entry in enumerate(entries))
        return cls({name: _node_from_json(name, value) for name, value in nodes.items()}, resident, groups, slices)

    @classmethod
    def loads(cls, text: str) -> DecisionRecord:
        """Read a record from JSON text.

        Raises:
            ScheduleError: the text is not JSON, or not a record.
        """
        try:
            data = parse_json(text)
        except ValueError as problem:
            raise record_error("record", f"not valid JSON: {problem}") from problem
        return cls.from_json(data)


def _node_to_json(override: NodeOverride) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if override.tile is not None:
        result["tile"] = list(override.tile)
    if override.order is not None:
        result["order"] = list(override.order)
    if override.split_axis is not None:
        result["split_axis"] = override.split_axis[0]
    if override.buffers is not None:
        result["buffers"] = override.buffers
    if override.portion is not None:
        result["portion"] = list(override.portion)
    return result


def _node_from_json(name: str, data: Any) -> NodeOverride:
    entry = expect(data, dict, f"node {name!r}", "an object")
    reject_unknown(entry, _FIELDS, f"node {name!r}")
    split: tuple[int | None] | None = None
    if "split_axis" in entry:
        value = entry["split_axis"]
        split = (None,) if value is None else (integer(value, f"node {name!r} field 'split_axis'"),)
    return NodeOverride(
        tile=_integers(entry, "tile", name),
        order=_integers(entry, "order", name),
        split_axis=split,
        buffers=integer(entry["buffers"], f"node {name!r} field 'buffers'") if "buffers" in entry else None,
        portion=_integers(entry, "portion", name),
    )


def _group_to_json(group: GroupDecision) -> dict[str, Any]:
    outer = {} if group.outer is None else {"outer": group.outer}
    parts = {} if group.parts is None else {"parts": asdict(group.parts)}
    return {
        "nodes": list(group.nodes),
        "axis": group.axis,
        "size": group.size,
        "split_axes": list(group.split_axes),
        "buffers": group.buffers,
        **outer,
        **parts,
    }


def _group_from_json(index: int, data: Any) -> GroupDecision:
    where = f"group {index}"
    entry = expect(data, dict, where, "an object")
    reject_unknown(entry, (*_GROUP_FIELDS, "outer", "parts"), where)
    missing = [key for key in _GROUP_FIELDS if key not in entry]
    if missing:
        raise record_error(where, f"the field {missing[0]!r} is missing; a group is fixed as a whole")
    names = expect(entry["nodes"], list, f"{where} field 'nodes'", "a list of node names")
    axes = expect(entry["split_axes"], list, f"{where} field 'split_axes'", "a list of axes")
    return GroupDecision(
        tuple(expect(name, str, f"{where} field 'nodes'", "a node name") for name in names),
        integer(entry["axis"], f"{where} field 'axis'"),
        integer(entry["size"], f"{where} field 'size'"),
        tuple(None if axis is None else integer(axis, f"{where} field 'split_axes'") for axis in axes),
        integer(entry["buffers"], f"{where} field 'buffers'"),
        integer(entry["outer"], f"{where} field 'outer'") if entry.get("outer") is not None else None,
        _parts_from_json(f"{where} field 'parts'", entry["parts"]) if entry.get("parts") is not None else None,
    )


def _parts_from_json(where: str, data: Any) -> GroupParts:
    entry = expect(data, dict, where, "an object")
    reject_unknown(entry, (*_PART_FIELDS, "keep"), where)
    missing = [key for key in _PART_FIELDS if key not in entry]
    if missing:
        raise record_error(where, f"the field {missing[0]!r} is missing; parts are fixed as a whole")
    first, last, axis, size = (integer(entry[key], f"{where}, {key!r}") for key in _PART_FIELDS)
    return GroupParts(
        first, last, axis, size, expect(entry.get("keep", False), bool, f"{where}, 'keep'", "true or false")
    )


def _integers(entry: Mapping[str, Any], key: str, name: str) -> tuple[int, ...] | None:
    if key not in entry:
        return None
    where = f"node {name!r} field {key!r}"
    values = expect(entry[key], list, where, "a list of whole numbers")
    return tuple(integer(value, where) for value in values)
