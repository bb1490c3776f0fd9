"""The answer of the accuracy check as text: verdict, cause, cure, then the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from torq_byoc.report.tables import console_for_output

MOST_DEVIATIONS = 12


def print_check(data: Mapping[str, Any]) -> None:
    """The result of ``accuracy.result_json.result_data``."""
    console = console_for_output()
    console.print(_verdict(data))
    if data["not_proven"]:
        console.print(f"proven: {data['proven']}")
        console.print(f"not proven: {data['not_proven']}")
    for miss in data["misses"]:
        console.print(f"missed: {miss['sentence']}")
    for line in _cause(data):
        console.print(line)
    for line in _accuracy(data):
        console.print(line)
    console.print(_outputs(data))
    console.print(_layers(data))
    for finding in data["lint"]:
        console.print(f"{finding['severity']}: {finding['where']}: {finding['what']}; {finding['remedy']}")
    for deviation in data["deviations"][:MOST_DEVIATIONS]:
        kind = "arises in" if deviation["local"] else "inherited by"
        console.print(f"{deviation['stage']} error {kind} {deviation['node']}: {deviation['detail']}")
    if len(data["deviations"]) > MOST_DEVIATIONS:
        console.print(f"... {len(data['deviations']) - MOST_DEVIATIONS} more errors; see --json")
    for note in data["notes"]:
        console.print(f"note: {note}")


def _verdict(data: Mapping[str, Any]) -> str:
    usual = data["against"] == "the float model"
    reference = data["reference"] if usual else f"{data['against']} ({data['reference']})"
    about = f"{data['model']} ({data['precision']}), {data['samples']} samples against {reference}"
    return f"may be shipped: {about}" if data["passed"] else f"may NOT be shipped: {about}"


def _cause(data: Mapping[str, Any]) -> list[str]:
    cause = data["cause"]
    if cause is None:
        return []
    where = f"{cause['node']} ({cause['stage']}): {cause['detail']}"
    if data["passed"]:
        return [f"weakest layer: {where}"]
    proof = [f"proof: {cause['proof']}"] if cause["proof"] else []
    return [f"cause: {where}", *proof, f"try: {cause['remedy']}"]


def _accuracy(data: Mapping[str, Any]) -> list[str]:
    lines = []
    scores = data["labels"]
    if scores:
        lines.append(
            f"top-1: float {scores['float_top1']:.2%}, NPU {scores['npu_top1']:.2%};"
            f" top-5: float {scores['float_top5']:.2%}, NPU {scores['npu_top5']:.2%};"
            f" same answer {scores['agreement']:.2%} of {scores['rows']}"
        )
    lines += [f"metric {name}: {value:g}" for name, value in data["metric"].items()]
    return lines


def _outputs(data: Mapping[str, Any]) -> Table:
    table = Table("output", "part", "SQNR dB", "cosine", "max error", "peak", "same best", "lost channels", box=None)
    for row in data["outputs"]:
        lost = "all of it" if row["lost"] else str(len(row["dead_channels"]) or "")
        part = "" if row["part"] == row["output"] else row["part"]
        figures = (_decibels(row["sqnr"]), f"{row['cosine']:.6f}", _number(row["max_error"]), _number(row["peak"]))
        table.add_row(row["output"], part, *figures, _share(row["agreement"]), lost)
    return table


def _layers(data: Mapping[str, Any]) -> Table:
    table = Table(
        "layer", "operator", "type", "SQNR dB", "cosine", "alone dB", "worst channel", "same best", "saturated",
        "zeroed", "unused", "lost channels", "steps", box=None,
    )  # fmt: skip
    for row in data["layers"]:
        codes, quantization, rounding = row["codes"], row["quantization"], row["rounding"]
        worst = row["worst_channel"]
        table.add_row(
            row["node"] or row["tensor"],
            row["op"],
            quantization["dtype"] if quantization else "float",
            _decibels(row["overall"]["sqnr"]),
            f"{row['overall']['cosine']:.6f}",
            _decibels(row["local"]["sqnr"]),
            f"{worst['channel']}: {_decibels(worst['sqnr'])}" if worst else "",
            _share(row["agreement"]),
            *(_share(codes[name]) if codes else "" for name in ("saturated", "zeroed", "unused")),
            str(len(row["dead_channels"]) or ""),
            f"{rounding['worst']:g}" if rounding else "",
        )
        for part in row["operands"]:
            figures = (_decibels(part["overall"]["sqnr"]), f"{part['overall']['cosine']:.6f}")
            lost = str(len(part["dead_channels"]) or "")
            alone = _decibels(part["local"]["sqnr"])
            table.add_row(f"  operand {part['name']}", "", "", *figures, alone, "", "", "", "", "", lost, "")
    return table


def _decibels(value: float) -> str:
    return "equal" if value >= 200 else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.2%}"


def _number(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.4g}"
