"""Faults of the host module, and of the types at the border to programs."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.accuracy.fault import Fault
from benchmarks.accuracy.fault_subjects import Subject
from benchmarks.accuracy.program_editor import with_program
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.intent import layer_name
from torq_byoc.npu_model.container import pack_container, unpack_container
from torq_byoc.npu_model.dtypes import DType

_STEP = re.compile(r'^ *(\w+): R\.Tensor\((\(.*?\)), dtype="(\w+)"\) = R\.(\w+)\((.*)\)$', re.MULTILINE)
_CALL = re.compile(r'R\.call_dps_packed\("torq\.runtime\.run", \((\w+), \d+, (\w+)')
_SCALE = re.compile(r'R\.const\(([\d.e+-]+), "float32"\)')
_SIGNS = {"int8": "uint8", "uint8": "int8", "int16": "uint16", "float32": "float16"}
_SAME_SIZE = {DType.INT8: DType.UINT8, DType.UINT8: DType.INT8, DType.INT16: DType.UINT16, DType.BF16: DType.INT16}
_CHANGED_OPERATORS = (("exclusive=False", "exclusive=True"), ("R.triu(", "R.tril("))

Sections = dict[str, bytes]
Change = Callable[[Sections, str, Subject, np.random.Generator], tuple[str, str, str] | None]
"""Changes a host module's sections: its new text, the step at fault, the facts; None where there is no place."""


def _in_host(kind: str, change: Change) -> Callable[[Subject, np.random.Generator], Fault | None]:
    """An injector that changes the stored host module."""

    def inject(subject: Subject, rng: np.random.Generator) -> Fault | None:
        stages = subject.stages
        if not stages.compiled.host:
            return None
        sections = dict(unpack_container(stages.compiled.host))
        found = change(sections, sections["script"].decode(), subject, rng)
        if found is None:
            return None
        text, step, where = found
        sections["script"] = text.encode()
        compiled = replace(stages.compiled, host=pack_container(sections))
        return Fault(kind, Stage.HOST, subject.layers_of_step(step), where, replace(stages, compiled=compiled))

    return inject


def _pick(matches: list[re.Match[str]], rng: np.random.Generator) -> re.Match[str] | None:
    return matches[int(rng.integers(len(matches)))] if matches else None


def _wrong_scale(
    sections: Sections, text: str, subject: Subject, rng: np.random.Generator
) -> tuple[str, str, str] | None:
    """A quantization on the host has the scale of another one."""
    del sections, subject
    steps = [match for match in _STEP.finditer(text) if match[4] in ("quantize", "dequantize")]
    scales = sorted({scale for match in steps for scale in _SCALE.findall(match[5])})
    chosen = _pick(steps, rng)
    if chosen is None or len(scales) < 2:
        return None
    own = _SCALE.findall(chosen[5])[0]
    other = str(rng.choice([scale for scale in scales if scale != own]))
    return _replaced(text, chosen, own, other), chosen[1], f"{chosen[1]}: scale {own} -> {other}"


def _replaced(text: str, match: re.Match[str], old: str, new: str) -> str:
    return text[: match.start()] + match[0].replace(old, new) + text[match.end() :]


def _no_zero_point(
    sections: Sections, text: str, subject: Subject, rng: np.random.Generator
) -> tuple[str, str, str] | None:
    """A quantization on the host forgets its zero point."""
    del subject
    steps = [match for match in _STEP.finditer(text) if match[4] in ("quantize", "dequantize")]
    chosen = _pick(steps, rng)
    names = re.findall(r"constant_(\d+)", chosen[5]) if chosen else []
    if chosen is None or not names:
        return None
    section = f"constant/{int(names[0]):05d}"
    value = np.load(io.BytesIO(sections[section]))
    if not value.any():
        return None
    buffer = io.BytesIO()
    np.save(buffer, np.zeros_like(value))
    sections[section] = buffer.getvalue()
    return text, chosen[1], f"{chosen[1]}: zero point {value}"


def _other_operator(
    sections: Sections, text: str, subject: Subject, rng: np.random.Generator
) -> tuple[str, str, str] | None:
    """An operator on the host does something else."""
    del sections, subject
    steps = [(match, *pair) for match in _STEP.finditer(text) for pair in _CHANGED_OPERATORS if pair[0] in match[0]]
    if not steps:
        return None
    match, old, new = steps[int(rng.integers(len(steps)))]
    return _replaced(text, match, old, new), match[1], f"{match[1]}: {old} -> {new}"


def _other_type(
    sections: Sections, text: str, subject: Subject, rng: np.random.Generator
) -> tuple[str, str, str] | None:
    """What a program is given is converted to another type on the way."""
    del sections, subject
    made = {match[1]: match for match in _STEP.finditer(text)}
    calls = [match for match in _CALL.finditer(text) if match[2] in made]
    call = _pick(calls, rng)
    if call is None:
        return None
    source = made[call[2]]
    kind = _SIGNS[source[3]]
    start = text.rfind("\n", 0, call.start()) + 1
    line = text[start : text.index("\n", start)]
    indent = line[: len(line) - len(line.lstrip())]
    cast = f'{indent}other: R.Tensor({source[2]}, dtype="{kind}") = R.astype({source[1]}, dtype="{kind}")\n'
    changed = line.replace(f", {source[1]})", ", other)")
    return text[:start] + cast + text[start:].replace(line, changed, 1), call[2], f"{call[2]}: {source[3]} -> {kind}"


def _binding_type(subject: Subject, rng: np.random.Generator) -> Fault | None:
    """A program declares another type of the same size."""
    symbol = str(rng.choice(sorted(subject.intents)))
    intent = subject.intents[symbol]
    given = rng.random() < 0.5
    bindings = list(intent.program.inputs if given else intent.program.outputs)
    which = int(rng.integers(len(bindings)))
    binding = bindings[which]
    if binding.dtype not in _SAME_SIZE:
        return None
    bindings[which] = replace(binding, dtype=_SAME_SIZE[binding.dtype])
    changed = tuple(bindings)
    program = replace(intent.program, inputs=changed) if given else replace(intent.program, outputs=changed)
    graph = intent.graph
    names = graph.inputs if given else graph.outputs
    near = [node for node in graph.nodes if names[which] in (*node.inputs, node.output)]
    stages = with_program(subject.stages, symbol, program)
    where = f"{names[which]}: {binding.dtype.value} -> {bindings[which].dtype.value}"
    return Fault("boundary dtype", Stage.HOST, tuple(layer_name(node) for node in near), where, stages)


HOST = (
    _in_host("scale swapped", _wrong_scale),
    _in_host("zero point dropped", _no_zero_point),
    _in_host("operator wrong", _other_operator),
    _in_host("boundary dtype", _other_type),
    _binding_type,
)
