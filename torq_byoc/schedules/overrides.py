"""Checks that a decision record applies to a graph and a machine."""

from __future__ import annotations

from collections.abc import Mapping

from torq_byoc.errors import ScheduleError
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


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


def _check_tile(name: str, tile: tuple[int, ...], model: NodeModel) -> None:
    if len(tile) != len(model.shape):
        raise _field(name, "tile", f"{len(tile)} extents for an output of shape {list(model.shape)}")
    for axis, (size, extent, step) in enumerate(zip(tile, model.shape, model.steps, strict=True)):
        if not 1 <= size <= extent:
            raise _field(name, "tile", f"extent {size} along axis {axis} is outside 1..{extent}")
        if size < extent and (step == 0 or size % step):
            rule = "is never cut" if step == 0 else f"is cut at multiples of {step}"
            raise _field(name, "tile", f"extent {size} along axis {axis}, which {rule}")


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
