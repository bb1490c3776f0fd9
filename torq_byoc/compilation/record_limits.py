"""What no tuning record can hold, whatever its graph: found when a file is read, not when a model happens to use it."""

from __future__ import annotations

from collections.abc import Iterable

from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeOverride

LARGEST_EXTENT = (1 << 31) - 1
"""Of a tile, a band or a portion: tensors are indexed by 32 bits."""
MOST_AXES = 16
"""Of a tensor."""


def check_limits(record: DecisionRecord) -> None:
    """Refuse what is impossible for every graph.

    Raises:
        ValueError: an extent, axis or number of buffers out of range, or a node that is decided alone and in a group.
    """
    for name, override in record.nodes.items():
        _check_node(f"node {name!r}", override)
    for name, count in record.slices.items():
        _within(f"slices of {name!r}", (count,), 1, LARGEST_EXTENT)
    for index, group in enumerate(record.groups or ()):
        _check_group(f"group {index}", group)
    members = [name for group in record.groups or () for name in group.nodes]
    for name in members:
        if name in record.nodes:
            raise ValueError(f"node {name!r} is decided alone and in a group")
    if len(set(members)) < len(members):
        raise ValueError("a node is in two groups")


def _check_node(where: str, override: NodeOverride) -> None:
    _within(f"{where} field 'tile'", override.tile or (), 1, LARGEST_EXTENT)
    _within(f"{where} field 'portion'", override.portion or (), 1, LARGEST_EXTENT)
    _within(f"{where} field 'order'", override.order or (), 0, MOST_AXES - 1)
    _within(f"{where} field 'split_axis'", override.split_axis or (), 0, MOST_AXES - 1)
    _within(f"{where} field 'buffers'", (override.buffers,), 1, 2)


def _check_group(where: str, group: GroupDecision) -> None:
    _within(f"{where} field 'axis'", (group.axis,), 0, MOST_AXES - 1)
    _within(f"{where} field 'outer'", (group.outer,), 0, MOST_AXES - 1)
    _within(f"{where} field 'size'", (group.size,), 1, LARGEST_EXTENT)
    _within(f"{where} field 'split_axes'", group.split_axes, 0, MOST_AXES - 1)
    _within(f"{where} field 'buffers'", (group.buffers,), 1, 2)
    if group.parts is not None:
        parts = f"{where} field 'parts'"
        _within(parts, (group.parts.first, group.parts.last), 0, len(group.nodes) - 1)
        _within(parts, (group.parts.axis,), 0, MOST_AXES - 1)
        _within(parts, (group.parts.size,), 1, LARGEST_EXTENT)


def _within(where: str, values: Iterable[int | None], least: int, most: int) -> None:
    for value in values:
        if value is not None and not least <= value <= most:
            raise ValueError(f"{where}: {value} is not between {least} and {most}")
