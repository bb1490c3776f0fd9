"""A model around the nodes that nothing can run, so that a report can say where all the others run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.placement import Placement, place
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.frontend.input_shapes import fix_input_shapes
from torq_byoc.frontend.shapes import declared_shape, infer_shapes


def place_around(model: onnx.ModelProto, options: Options) -> tuple[Placement | None, dict[str, str]]:
    """Place what can be placed.

    Args:
        model: with a name for every node.
        options: as for compiling.

    Returns:
        Where nodes run (None when no node is left), and why others are refused, by name.

    Raises:
        TorqError: anything wrong with the model but operators that nothing can run.
    """
    refused: dict[str, str] = {}
    current, present = model, options
    while current.graph.node:
        try:
            return place(current, present, StageClock(options.progress)), refused
        except UnsupportedOpError as error:
            found = _named(error, {node.name for node in current.graph.node})
            if not found:
                raise
            refused.update(found)
            current, cut_off = _without(model, refused, options)
            refused.update(cut_off)
            present = replace(options, calibration=_with_samples(options.calibration, current, model))
    return None, refused


def _named(error: UnsupportedOpError, known: Collection[str]) -> dict[str, str]:
    """Refused nodes with the reason; what was written out of a node (NAME_1) stands for that node."""
    nodes = error.details.get("nodes", ())
    names = [name for group in nodes.values() for name in group] if isinstance(nodes, Mapping) else list(nodes)
    found = {}
    for name in names:
        base, _, number = name.rpartition("_")
        origin = name if name in known else base if number.isdigit() and base in known else ""
        if origin:
            found[origin] = f"{error.what}: {error.why}" if error.why else error.what
    return found


def _without(
    model: onnx.ModelProto, refused: Collection[str], options: Options
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The model without some nodes, and nodes that go with them.

    Results of a removed node become inputs where their shapes are known; readers of other ones go as well.
    Operands become outputs, so that what computes them stays.
    """
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    fix_input_shapes(cut, dict(options.shapes))
    infer_shapes(cut)
    types = {value.name: value for value in [*cut.graph.value_info, *cut.graph.output]}
    stored = {tensor.name for tensor in cut.graph.initializer}
    given = stored | {value.name for value in cut.graph.input}
    kept: list[onnx.NodeProto] = []
    lost: dict[str, str] = {}
    cut_off: dict[str, str] = {}
    opened: list[onnx.ValueInfoProto] = []
    needed: dict[str, None] = {}
    for node in cut.graph.node:
        source = next((lost[name] for name in node.input if name in lost), None)
        if node.name not in refused and source is None:
            kept.append(node)
            continue
        if node.name not in refused:
            cut_off[node.name] = f"it reads a result of {source!r} whose shape is not known"
        needed.update(dict.fromkeys(name for name in node.input if name and name not in lost and name not in given))
        for name in filter(None, node.output):
            shape = declared_shape(types[name]) if name in types else None
            if node.name in refused and shape is not None and None not in shape and 0 not in shape:
                opened.append(types[name])
                given.add(name)
            else:
                lost[name] = node.name
    outputs = [value.name for value in cut.graph.output if value.name not in lost and value.name not in given]
    named = [types.get(name, onnx.ValueInfoProto(name=name)) for name in dict.fromkeys([*outputs, *needed])]
    return _rebuilt(cut, kept, opened, named), cut_off


def _rebuilt(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    opened: Collection[onnx.ValueInfoProto],
    outputs: Collection[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """A model of the kept nodes; outputs that no kept node computes are left out."""
    read = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output}
    graph = helper.make_graph(
        nodes,
        model.graph.name,
        [*model.graph.input, *(value for value in opened if value.name in read)],
        [value for value in outputs if value.name in made],
        model.graph.initializer,
        value_info=model.graph.value_info,
    )
    rebuilt = onnx.ModelProto()
    rebuilt.CopyFrom(model)
    rebuilt.graph.CopyFrom(graph)
    return rebuilt


def _with_samples(
    calibration: Mapping[str, np.ndarray] | None, model: onnx.ModelProto, original: onnx.ModelProto
) -> Mapping[str, np.ndarray] | None:
    """Calibration data with numbers between 0 and 1 for inputs that were opened: places do not depend on them."""
    if calibration is None:
        return None
    known = {value.name for value in original.graph.input}
    count = len(next(iter(calibration.values()), ()))
    rng = np.random.default_rng(0)
    extra = {}
    for value in model.graph.input:
        if value.name not in known:
            first, *rest = [n or 1 for n in declared_shape(value) or ()] or [1]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            extra[value.name] = rng.random((count * first, *rest)).astype(dtype)
    return {**calibration, **extra}
