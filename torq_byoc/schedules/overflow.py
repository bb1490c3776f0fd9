"""The report of a node whose smallest tile does not fit the LRAM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torq_byoc.errors import LramOverflowError
from torq_byoc.schedules.cost_model import tile_kinds
from torq_byoc.schedules.decide import Choice
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.traffic import TilingTable


def overflow_error(model: NodeModel, smallest: Choice, bound: int) -> LramOverflowError:
    """The error for a node, with everything that occupies LRAM at its smallest legal tile.

    Args:
        model: the node.
        smallest: its decision with the least demand.
        bound: bytes that were available.
    """
    node, demand = model.node, smallest.cost.demand
    contributors = _contributors(model, smallest.decision)
    biggest = max(contributors, key=lambda entry: entry["bytes"])
    levers = _levers(model, demand)
    details: dict[str, Any] = {
        "resource": "lram",
        "node": node.name,
        "op": node.op,
        "demand": demand,
        "bound": bound,
        "gap": demand - bound,
        "tile": list(smallest.decision.tile),
        "contributors": contributors,
        "levers": levers,
    }
    lines = "; ".join(f"{entry['name']} {_shape(entry['shape'])} {entry['bytes']} B" for entry in contributors)
    return LramOverflowError(
        f"one tile of {node.op} does not fit the LRAM",
        where=node.origin or node.name,
        why=f"the smallest legal tile {_shape(smallest.decision.tile)} needs {demand} B, {bound} B are usable "
        f"({demand - bound} B too many, most of it {biggest['name']}): {lines}",
        remedy=" or ".join(levers),
        details=details,
    )


def _contributors(model: NodeModel, decision: NodeDecision) -> list[dict[str, Any]]:
    """What occupies LRAM while a node runs with nothing resident: name, shape, bytes, buffers; largest first."""
    table = TilingTable(model, [decision.tile], decision.portion)
    entries = []
    for index, stream in enumerate(model.streams):
        moved = table.stream(index, decision.order)
        depth = min(decision.buffers, int(moved.loads[0]))
        nbytes = math.ceil(moved.part[0])
        entries.append(_entry(stream.label, model.first_part(index, decision.tile), nbytes, depth))
    depth = min(decision.buffers, int(table.total[0]))
    entries.append(_entry(model.node.output, decision.tile, math.prod(decision.tile) * model.element, depth))
    kinds = tile_kinds(model.shape, decision.tile)
    nothing = Residency((False,) * len(model.inputs), False)
    axis, portion = decision.split_axis, decision.portion
    program = max(model.tile_cost(tile, axis, nothing, portion).program_peak for tile, _ in kinds)
    entries.append(_entry("slice programs", (program,), program, 2))
    return sorted(entries, key=lambda entry: -entry["bytes"])


def _entry(name: str, shape: Sequence[int], nbytes: int, buffers: int) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "bytes": nbytes * buffers, "buffers": buffers}


def _levers(model: NodeModel, demand: int) -> list[str]:
    levers = [f"use a hardware description with at least {_kib(demand + model.config.lram_reserve)} KiB of LRAM"]
    if any(model.graph.tensors[name].dtype.size > 1 for name in model.node.inputs):
        levers.append("use a narrower precision for this layer")
    levers.append("split the operator in the model, or keep it on the CPU")
    return levers


def _kib(nbytes: int) -> int:
    return math.ceil(nbytes / 1024)


def _shape(extents: list[int] | tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in extents) if extents else "scalar"
