"""Decisions as plain data: what a schedule is made of, how a person reads it, edits it and feeds it back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torq_byoc.errors import ScheduleError

FORMAT = 1
_FIELDS = ("tile", "order", "split_axis", "buffers")


@dataclass(frozen=True)
class NodeDecision:
    """How one node is cut and run.

    Attributes:
        tile: extent of a tile along every output axis (the last tile of an axis may be smaller).
        order: all output axes, outermost loop first; an operand whose region does not change from one
            tile to the next stays in LRAM, so the order says which operand is stationary.
        split_axis: output axis along which a tile is divided between the slices; None runs it on one.
        buffers: tiles of an operand in flight: 2 overlaps transfers with compute, 1 does not.
    """

    tile: tuple[int, ...]
    order: tuple[int, ...]
    split_axis: int | None
    buffers: int

    def to_override(self) -> NodeOverride:
        """The same decision with every field fixed."""
        return NodeOverride(self.tile, self.order, (self.split_axis,), self.buffers)


@dataclass(frozen=True)
class NodeOverride:
    """The fields of a node's decision that are fixed; None leaves a field to the search.

    ``split_axis`` is a one-element tuple when fixed, since None is one of its values.
    """

    tile: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    split_axis: tuple[int | None] | None = None
    buffers: int | None = None

    def allows(self, decision: NodeDecision) -> bool:
        """Whether a decision agrees with every fixed field."""
        return (
            self.tile in (None, decision.tile)
            and self.order in (None, decision.order)
            and self.split_axis in (None, (decision.split_axis,))
            and self.buffers in (None, decision.buffers)
        )


@dataclass(frozen=True)
class DecisionRecord:
    """Everything that determines the schedule of a graph, or the part of it that a person fixes.

    Attributes:
        nodes: node name -> fixed fields.
        resident: tensor name -> True (stays in LRAM from producer to last consumer) or False (goes
            through XRAM); tensors not named are left to the search.
    """

    nodes: Mapping[str, NodeOverride] = field(default_factory=dict)
    resident: Mapping[str, bool] = field(default_factory=dict)

    def restricted_to(self, nodes: Collection[str], tensors: Collection[str]) -> DecisionRecord:
        """The entries about these nodes and tensors: what concerns one partition of a model."""
        return DecisionRecord(
            {name: override for name, override in self.nodes.items() if name in nodes},
            {name: value for name, value in self.resident.items() if name in tensors},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-able form, keys sorted; fields that are not fixed are left out."""
        nodes = {name: _node_to_json(self.nodes[name]) for name in sorted(self.nodes)}
        return {"format": FORMAT, "nodes": nodes, "resident": {t: self.resident[t] for t in sorted(self.resident)}}

    def dumps(self) -> str:
        """The record as text, one node a line so that it can be edited and compared."""
        data = self.to_json()
        blocks = []
        for key in ("nodes", "resident"):
            lines = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in data[key].items()]
            blocks.append(f'  "{key}": {{\n' + ",\n".join(lines) + "\n  }" if lines else f'  "{key}": {{}}')
        return f'{{\n  "format": {FORMAT},\n' + ",\n".join(blocks) + "\n}\n"

    @classmethod
    def from_json(cls, data: Any) -> DecisionRecord:
        """Read the JSON-able form, whole or partial.

        Raises:
            ScheduleError: an unknown key or a value of the wrong kind; names the node and the field.
        """
        root = _expect(data, dict, "record", "an object")
        _reject_unknown(root, ("format", "nodes", "resident"), "record")
        if root.get("format", FORMAT) != FORMAT:
            raise _error("format", f"this version reads format {FORMAT}, the record is format {root['format']!r}")
        nodes = _expect(root.get("nodes", {}), dict, "nodes", "an object keyed by node name")
        resident = _expect(root.get("resident", {}), dict, "resident", "an object keyed by tensor name")
        for name, value in resident.items():
            _expect(value, bool, f"resident {name!r}", "true or false")
        return cls({name: _node_from_json(name, value) for name, value in nodes.items()}, resident)

    @classmethod
    def loads(cls, text: str) -> DecisionRecord:
        """Read a record from JSON text.

        Raises:
            ScheduleError: the text is not JSON, or not a record.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise _error("record", f"not valid JSON: {problem}") from problem
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
    return result


def _node_from_json(name: str, data: Any) -> NodeOverride:
    entry = _expect(data, dict, f"node {name!r}", "an object")
    _reject_unknown(entry, _FIELDS, f"node {name!r}")
    split: tuple[int | None] | None = None
    if "split_axis" in entry:
        value = entry["split_axis"]
        split = (None,) if value is None else (_integer(value, f"node {name!r} field 'split_axis'"),)
    return NodeOverride(
        tile=_integers(entry, "tile", name),
        order=_integers(entry, "order", name),
        split_axis=split,
        buffers=_integer(entry["buffers"], f"node {name!r} field 'buffers'") if "buffers" in entry else None,
    )


def _integers(entry: Mapping[str, Any], key: str, name: str) -> tuple[int, ...] | None:
    if key not in entry:
        return None
    where = f"node {name!r} field {key!r}"
    values = _expect(entry[key], list, where, "a list of whole numbers")
    return tuple(_integer(value, where) for value in values)


def _integer(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _error(where, f"expected a whole number, found {value!r}")
    return value


def _expect(value: Any, kind: type, where: str, description: str) -> Any:
    if not isinstance(value, kind):
        raise _error(where, f"expected {description}, found {type(value).__name__}")
    return value


def _reject_unknown(entry: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise _error(where, f"unknown key {unknown[0]!r}; known keys are {', '.join(known)}")


def _error(where: str, why: str) -> ScheduleError:
    return ScheduleError(
        "the decision record cannot be read",
        where=where,
        why=why,
        remedy="print a complete record with `torq compile --explain` and edit that",
    )
