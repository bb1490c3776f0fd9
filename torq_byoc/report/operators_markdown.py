"""The operator table as ``docs/operators.md``; ``torq ops --markdown`` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLACES = {
    "npu": "NPU",
    "composition": "NPU, composed",
    "npu+cpu": "NPU and CPU",
    "cpu": "CPU",
    "none": "refused",
}

_HEAD = """# Operators

What the compiler does with each ONNX operator, found by compiling a small model of each: in int8 (calibrated) and
in bf16.  `torq ops --markdown` prints this page; `torq ops MODEL.onnx` answers for the nodes of a model.

* **NPU**: one kernel of the slices (a view that moves no data needs none).
* **NPU, composed**: several kernels, for instance a look-up table between multiplications.
* **NPU and CPU**: part of it stays on the CPU.
* **CPU**: TVM runs it on the host, in the same executable.
* **refused**: there is no conversion; such operators of a model are listed all at once.

Shapes must be static, at most 8 axes.  A float operator between quantized ones runs on the NPU only when its result is
quantized too, or in bf16 with `--precision mixed`.
"""


def markdown_table(data: Mapping[str, Any]) -> str:
    """The page."""
    lines = [_HEAD, "| Operator | int8 | bf16 | Limits (int8; bf16) |", "|---|---|---|---|"]
    for row in data["operators"]:
        mappings = [row["mappings"][precision] for precision in data["precisions"]]
        cells = [_cell(mapping) for mapping in mappings]
        limits = list(dict.fromkeys(mapping["limits"] for mapping in mappings if mapping["limits"]))
        lines.append(f"| {row['op']} | {' | '.join(cells)} | {_escaped('; '.join(limits))} |")
    lines += [
        "",
        f"Operators of quantized models become the integer form of what they enclose: {_listed(data['rewritten'])}."
        f"  So do, or become such operators, those of the domain `com.microsoft`: {_listed(data['contributed'])}.",
        "",
        f"Products of integers with int32 results run on the NPU: {_listed(data['integer_products'])}.",
        "",
        f"Other operators that TVM runs on the CPU: {_listed(data['other_cpu'])}.",
        "",
        f"Operators that become the simpler ones they are defined by, wherever those run: {_listed(data['defined'])}.",
        "",
        "Operators whose data decide the size of their results, computed from constants when compiling and refused"
        f" otherwise: {_listed(data['sized_by_data'])}.",
        "",
        f"Operators without a conversion: {_listed(data['unsupported'])}.",
        "",
    ]
    return "\n".join(lines)


def _cell(mapping: Mapping[str, str]) -> str:
    return _escaped(f"{PLACES[mapping['place']]}: {mapping['detail']}")


def _listed(names: list[str]) -> str:
    return ", ".join(names)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
