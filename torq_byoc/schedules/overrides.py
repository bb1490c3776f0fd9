"""Checks that a decision record applies to a graph and a machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torq_byoc.errors import ScheduleError
from torq_byoc.schedules.fusion.segment_spaces import SegmentSpace, SegmentSpaces
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, GroupParts, NodeOverride


def check_slices(record: DecisionRecord, nodes: Collection[str], slices: int) -> None:
    """Check the numbers of slices that a record gives to nodes.

    Args:
        record: the overrides.
        nodes: names of the scheduled nodes.
        slices: of the machine.

    Raises:
        ScheduleError: an unknown node, or more slices than there are; names the node.
    """
    for name, count in record.slices.items():
        if name not in nodes:
            raise _error(f"slices of {name!r}", "the graph has no such node, or none that runs on the slices")
        if not 1 <= count <= slices:
            raise _error(f"slices of {name!r}", f"{count} is outside 1..{slices}, the slices of the machine")


def check_nodes(record: DecisionRecord, models: Mapping[str, NodeModel]) -> None:
    """Check every node entry of a record.

    Args:
        record: the overrides.
        models: scheduled node name -> its model.

    Raises:
        ScheduleError: an unknown node, or a field that does not suit the node; names both.
    """
    for name, override in record.nodes.items():
        if name not in models:
            known = ", ".join(list(models)[:8])
            raise _error(f"node {name!r}", f"the graph has no such node; it has {known}{_more(models)}")
        _check_node(name, override, models[name])


def check_groups(groups: Sequence[GroupDecision], position: Mapping[str, int], spaces: SegmentSpaces) -> list[int]:
    """Check all group entries of a record; returns the index of the first node of each.

    Raises:
        ScheduleError: as ``check_group``, or a node in more than one group.
    """
    seen: set[str] = set()
    for name in (name for group in groups for name in group.nodes):
        if name in seen:
            raise _error(f"node {name!r}", "it is in more than one group")
        seen.add(name)
    return [check_group(group, position, spaces) for group in groups]


def check_group(group: GroupDecision, position: Mapping[str, int], spaces: SegmentSpaces) -> int:
    """Check a group entry of a record; returns the index of its first node.

    Args:
        group: the entry.
        position: scheduled node name -> its index.
        spaces: knows which nodes can be fused.

    Raises:
        ScheduleError: unknown nodes, nodes that do not follow one another or cannot be fused, or a cut that does not
            suit the last of them.
    """
    where = f"group of {', '.join(map(repr, group.nodes[:4]))}{', ...' if len(group.nodes) > 4 else ''}"
    unknown = [name for name in group.nodes if name not in position]
    if unknown:
        raise _error(where, f"the graph has no node {unknown[0]!r}")
    places = [position[name] for name in group.nodes]
    if len(places) < 2 or places != list(range(places[0], places[0] + len(places))):
        raise _error(where, "a group is two or more nodes that follow one another in the graph")
    space = spaces.space(places[0], places[-1])
    if space is None:
        raise _error(where, "these nodes cannot run band by band: what they pass on is used in other ways as well")
    last = space.segment.last
    if not 0 <= group.axis < len(last.shape) or not 1 <= group.size <= last.shape[group.axis]:
        raise _error(where, f"bands of {group.size} along axis {group.axis} do not suit {list(last.shape)}")
    step = last.steps[group.axis]
    if group.size < last.shape[group.axis] and (step == 0 or group.size % step):
        raise _error(where, f"axis {group.axis} is {'never cut' if not step else f'cut at multiples of {step}'}")
    if group.outer is not None and not (group.outer != group.axis and _can_be_cut(last, group.outer)):
        raise _error(where, f"axis {group.outer} cannot be the outer one of bands along axis {group.axis}")
    _check_group_splits(where, group, space.segment.models)
    if group.parts is not None:
        _check_parts(where, group, group.parts, space)
    return places[0]


def _check_parts(where: str, group: GroupDecision, parts: GroupParts, space: SegmentSpace) -> None:
    models = space.segment.models
    if not 0 <= parts.first < parts.last < len(models) - 1:
        raise _error(where, f"parts of nodes {parts.first} to {parts.last}: two or more nodes, and one that reads them")
    last, axis = models[parts.last], parts.axis
    if not _can_be_cut(last, axis):
        raise _error(where, f"node {group.nodes[parts.last]!r} cannot be cut into parts along axis {axis}")
    if not 1 <= parts.size <= last.shape[axis]:
        raise _error(where, f"parts of {parts.size} along axis {axis} do not suit {list(last.shape)}")
    step = last.steps[axis]
    if parts.size < last.shape[axis] and parts.size % step:
        raise _error(where, f"axis {axis} of node {group.nodes[parts.last]!r} is cut at multiples of {step}")
    if not space.can_divide(group):
        raise _error(where, "these nodes cannot go part by part: parts overlap, or what they make is needed elsewhere")


def _can_be_cut(model: NodeModel, axis: int) -> bool:
    return 0 <= axis < len(model.shape) and model.steps[axis] > 0


def _check_group_splits(where: str, group: GroupDecision, models: Sequence[NodeModel]) -> None:
    if len(group.split_axes) != len(group.nodes):
        raise _error(where, f"{len(group.split_axes)} split axes for {len(group.nodes)} nodes")
    for name, axis, model in zip(group.nodes, group.split_axes, models, strict=True):
        if axis is not None and not _can_be_cut(model, axis):
            raise _error(where, f"node {name!r} cannot be cut along axis {axis}")
    if group.buffers not in (1, 2):
        raise _error(where, f"buffers {group.buffers} is neither 1 nor 2")


def forced_residency(record: DecisionRecord, roots: Mapping[str, str]) -> dict[str, bool]:
    """The residency entries of a record, keyed by storage.

    Args:
        record: the overrides.
        roots: tensor that may be resident -> the storage it belongs to.

    Raises:
        ScheduleError: a tensor that cannot be resident is asked to be, or aliases disagree.
    """
    forced: dict[str, bool] = {}
    for tensor, value in record.resident.items():
        if tensor not in roots:
            raise _error(
                f"resident {tensor!r}",
                "not a tensor that may stay in LRAM: it is unknown, a graph input or output, or read in stride phases",
            )
        if forced.setdefault(roots[tensor], value) != value:
            raise _error(f"resident {tensor!r}", f"it shares its storage with {roots[tensor]!r}, which says otherwise")
    return forced


def _check_node(name: str, override: NodeOverride, model: NodeModel) -> None:
    rank = len(model.shape)
    if override.tile is not None:
        _check_tile(name, override.tile, model)
    if override.order is not None and sorted(override.order) != list(range(rank)):
        raise _field(name, "order", f"{list(override.order)} is not a permutation of the axes 0..{rank - 1}")
    if override.split_axis is not None and override.split_axis[0] is not None:
        axis = override.split_axis[0]
        if not 0 <= axis < rank:
            raise _field(name, "split_axis", f"{axis} is not one of the axes 0..{rank - 1}")
        if model.steps[axis] == 0:
            raise _field(name, "split_axis", f"{model.node.op} cannot be cut along axis {axis}")
    if override.buffers not in (None, 1, 2):
        raise _field(name, "buffers", f"{override.buffers} is neither 1 nor 2")
    if override.portion:
        _check_portion(name, override.portion, override, model)


def _check_tile(name: str, tile: tuple[int, ...], model: NodeModel) -> None:
    if len(tile) != len(model.shape):
        raise _field(name, "tile", f"{len(tile)} extents for an output of shape {list(model.shape)}")
    for axis, (size, extent, step) in enumerate(zip(tile, model.shape, model.steps, strict=True)):
        if not 1 <= size <= extent:
            raise _field(name, "tile", f"extent {size} along axis {axis} is outside 1..{extent}")
        if size < extent and (step == 0 or size % step):
            rule = "is never cut" if step == 0 else f"is cut at multiples of {step}"
            raise _field(name, "tile", f"extent {size} along axis {axis}, which {rule}")


def _check_portion(name: str, portion: tuple[int, ...], override: NodeOverride, model: NodeModel) -> None:
    if len(portion) != len(model.reduction):
        raise _field(name, "portion", f"{len(portion)} extents for a reduction over {list(model.reduction)}")
    for axis, (size, extent) in enumerate(zip(portion, model.reduction, strict=True)):
        if not 1 <= size <= extent:
            raise _field(name, "portion", f"extent {size} along reduction axis {axis} is outside 1..{extent}")
    cut = [axis for axis, size in enumerate(portion) if size < model.reduction[axis]]
    if not cut:
        raise _field(name, "portion", "it is the whole reduction; [] leaves reductions whole")
    if any(portion[axis] > 1 for axis in range(cut[-1])):
        raise _field(name, "portion", "axes outside a cut one must have extent 1, so that terms keep their order")
    if override.tile is None:
        return
    splits = model.carried_splits(override.tile)
    if not splits or (override.split_axis is not None and override.split_axis[0] not in splits):
        raise _field(name, "tile", f"the sums of {list(override.tile)} do not fit the accumulators of the slices")


def _more(models: Mapping[str, NodeModel]) -> str:
    return f" and {len(models) - 8} more" if len(models) > 8 else ""


def _field(name: str, field: str, why: str) -> ScheduleError:
    return _error(f"node {name!r} field {field!r}", why)


def _error(where: str, why: str) -> ScheduleError:
    return ScheduleError(
        "a decision does not apply to this model",
        where=where,
        why=why,
        remedy="correct the field, or leave it out and let the search decide it",
    )
