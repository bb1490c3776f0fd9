"""Where each node of a model runs, and why: partitioning without scheduling."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import onnx

from torq_byoc.compiler import Options, resolve_precision
from torq_byoc.frontend import prepare, to_relax
from torq_byoc.frontend.passes.name_nodes import name_nodes
from torq_byoc.quantize import quantize_model
from torq_byoc.relay_patterns import PartitionedModule, partition

PLACES = ("npu", "npu+cpu", "cpu", "folded")
FOLDED = "computed when compiling, or part of a neighbour"


def model_coverage(model: onnx.ModelProto, options: Options, name: str) -> dict[str, Any]:
    """Each node with its place (one of ``PLACES``), and totals.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: precision, calibration, shapes, machine.
        name: how the report calls the model.

    Raises:
        TorqError: anything wrong with the model; operators that nothing can run are listed all at once.
    """
    prepared = prepare(model, dict(options.shapes))
    precision = resolve_precision(prepared, options)
    if precision in ("int8", "int16"):
        prepared = quantize_model(prepared, options.calibration, precision=precision)
    parted = partition(to_relax(prepared), "bf16" if precision == "bf16" else "quantized", options.config)
    nodes = _rows(model, parted)
    return {
        "model": name,
        "hw": options.config.name,
        "precision": precision,
        "nodes": nodes,
        "counts": {place: sum(row["place"] == place for row in nodes) for place in PLACES},
        "partitions": len(parted.partitions),
    }


def _rows(model: onnx.ModelProto, parted: PartitionedModule) -> list[dict[str, str]]:
    """The model's own nodes in order, then operators that the compiler added and left on the CPU."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    name_nodes(named.graph)
    groups = _groups(parted)
    on_cpu = {op.node: op for op in parted.cpu_ops}
    originals = {node.name for node in named.graph.node}
    written_out = _written_out(originals, {**groups, **on_cpu})
    rows = []
    for node in named.graph.node:
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
