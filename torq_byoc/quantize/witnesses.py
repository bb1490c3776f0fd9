"""Tensors to judge small outputs by: the nearest before them with enough elements.

Two probabilities agree with the float model's to 15 or to 50 dB by chance, and so do a thousand of which one is nearly
1; the features that they are made of do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import helper

from torq_byoc.quantize.output_parts import OutputPart, output_parts

ENOUGH = 256.0
"""Elements that share a tensor's energy from which on its error is no accident: its SQNR then varies by some 0.4 dB."""


def judged_parts(model: onnx.ModelProto, sizes: Mapping[str, float]) -> tuple[OutputPart, ...]:
    """The parts of large outputs, and in place of every small output the tensors before it.

    Args:
        model: prepared: static shapes, constants folded.
        sizes: of tensors that may be judged, how many elements share the energy of one sample.
    """
    producers = {name: node for node in model.graph.node for name in node.output}
    parts: dict[tuple[str, str], OutputPart] = {}
    for part in output_parts(model):
        found = _nearest(part.output, producers, sizes)
        for each in [part] if found in ([], [part.output]) else [OutputPart(name, name, None) for name in found]:
            parts[(each.output, each.name)] = each
    return tuple(parts.values())


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with further tensors as outputs."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    present = {value.name for value in model.graph.output}
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in present)
    return shown


def _nearest(output: str, producers: Mapping[str, onnx.NodeProto], sizes: Mapping[str, float]) -> list[str]:
    """The nearest tensors with enough elements that an output depends on; the output itself if it has them."""
    waiting, seen, found = [output], set(), []
    while waiting:
        name = waiting.pop()
        if name in seen or name not in producers:
            continue
        seen.add(name)
        if sizes.get(name, 0.0) >= ENOUGH:
            found.append(name)
        else:
            waiting += producers[name].input
    return sorted(found)
