"""Where each node of a model runs, and why: partitioning without scheduling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import onnx

from torq_byoc.compilation.options import Options
from torq_byoc.frontend.passes.name_nodes import name_nodes
from torq_byoc.relay_patterns import PartitionedModule
from torq_byoc.report.refused_nodes import place_around

REFUSED = "refused"
PLACES = ("npu", "npu+cpu", "cpu", "folded", REFUSED)
FOLDED = "computed when compiling, or part of a neighbour"


def model_coverage(model: onnx.ModelProto, options: Options, name: str) -> dict[str, Any]:
    """Each node with its place (one of ``PLACES``), and totals.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: precision, calibration, shapes, machine.
        name: how the report calls the model.

    Raises:
        TorqError: anything wrong with the model but operators that nothing can run, which have rows with the reason.
    """
    named = onnx.ModelProto()
    named.CopyFrom(model)
    name_nodes(named.graph)
    placement, refused = place_around(named, options)
    nodes = _rows(named, placement.parted if placement else None, refused)
    return {
        "model": name,
        "hw": options.config.name,
        "precision": placement.precision if placement else options.precision,
        "nodes": nodes,
        "counts": {place: sum(row["place"] == place for row in nodes) for place in PLACES},
        "partitions": len(placement.parted.partitions) if placement else 0,
        "notes": list(placement.notes) if placement else [],
        "warnings": list(placement.warnings) if placement else [],
    }


def _rows(model: onnx.ModelProto, parted: PartitionedModule | None, refused: Mapping[str, str]) -> list[dict[str, str]]:
    """The model's own nodes in order, then operators that the compiler added and left on the CPU."""
    groups = _groups(parted) if parted else {}
    on_cpu = {op.node: op for op in parted.cpu_ops} if parted else {}
    originals = {node.name for node in model.graph.node}
    written_out = _written_out(originals, {**groups, **on_cpu})
    rows = []
    for node in model.graph.node:
        if node.name in refused:
            rows.append(_row(node.name, node.op_type, REFUSED, refused[node.name]))
            continue
        names = written_out.get(node.name, [node.name])
        reasons = dict.fromkeys(on_cpu[name].reason for name in names if name in on_cpu)
        patterns = dict.fromkeys(groups[name] for name in names if name in groups)
        places = [place for place, found in (("npu", patterns), ("cpu", reasons)) if found]
        rows.append(
            _row(node.name, node.op_type, "+".join(places) or "folded", "; ".join(reasons or patterns) or FOLDED)
        )
    known = originals.union(*written_out.values())
    return rows + [_row(op.node, op.op, "cpu", op.reason) for op in on_cpu.values() if op.node not in known]


def _written_out(originals: Collection[str], found: Iterable[str]) -> dict[str, list[str]]:
    """Nodes that the front end writes out in simpler ones (recurrent cells), with those: NAME_1, NAME_2, ..."""
    parts: dict[str, list[str]] = {}
    for name in found:
        base, _, number = name.rpartition("_")
        if name not in originals and number.isdigit() and base in originals:
            parts.setdefault(base, []).append(name)
    return parts


def _groups(parted: PartitionedModule) -> dict[str, str]:
    """ONNX node -> pattern that runs it; a group's origin joins its nodes with "+"."""
    found = {}
    for symbol in parted.partitions:
        for origin, composite in parted.npu_ops[symbol]:
            found.update(dict.fromkeys(origin.split("+"), composite))
    return found


def _row(node: str, op: str, place: str, detail: str) -> dict[str, str]:
    return {"node": node, "op": op, "place": place, "detail": detail}
