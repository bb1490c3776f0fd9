"""What to do about an error, by where it arises."""

from __future__ import annotations

from collections.abc import Sequence

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.layers.layers import INPUT, Layer

MANY_SATURATED = 0.001
"""Part of a tensor's values outside its range from which the range is to blame."""
ANOTHER_RANGE = 0.01
"""Part of a model input's values outside its range from which data and calibration are of different kinds."""
MUCH_UNUSED = 0.5
"""Part of the codes without use from which the range is to blame."""

ENOUGH_STEPS = 64
"""Steps to an operand's peak with which it keeps its values."""

DEFECT = "report it with the model, the data and the command (add --bisect DIR to cut the failing layer out)"
"""For stages in which nothing may be lost."""


CARRIES_SCALES = "quantized"
"""In place of a precision: the model came with its scales."""

BY_KIND = {
    CARRIES_SCALES: "quantize the float model (torq compile FLOAT.onnx --calib FILE.npz): this one keeps its scales",
    "bf16": "use --precision int16 --calib FILE.npz: bf16 keeps 8 bits of a number, int16 keeps 15 of a tensor's range",
}
"""For models that are not quantized here."""


def remedy(stage: Stage, row: LayerRow | None, kind: str) -> str:
    """What to do.

    Args:
        stage: in which the error arises.
        row: what is known of the layer.
        kind: precision of the model, or ``CARRIES_SCALES``.
    """
    if stage is not Stage.QUANTIZATION or row is None:
        return DEFECT
    if is_in_another_range(row):
        return _other_data(row, kind)
    if kind in BY_KIND or row.layer.codes is None:
        return BY_KIND.get(kind, BY_KIND["bf16"])
    tensor, use = row.layer.tensor, row.use
    wider = _more_bits(row.layer)
    if row.parts:
        split = (
            f"split the concatenation {row.layer.node}: give its operands outputs of their own, "
            "so that each keeps a scale of its own"
        )
        return f"{split}; or {wider}" if _fit_in_16_bits(row) and not _has_16_bits(row.layer) else split
    if use and use.saturated > MANY_SATURATED:
        return (
            f"calibrate with more samples, and with ones like these: {use.saturated:.2%} of {tensor} lie outside the "
            f"calibrated range; or {wider}"
        )
    if use and use.unused > MUCH_UNUSED and use.zeroed > 0:
        return f"calibrate without outliers: {use.unused:.0%} of the codes of {tensor} have no use here; or {wider}"
    return wider


def remedy_of_many(rows: Sequence[LayerRow], kind: str) -> str:
    """What to do when no single layer is to blame."""
    for row in filter(is_in_another_range, rows):
        return _other_data(row, kind)
    if kind in BY_KIND:
        return BY_KIND[kind]
    more = "calibrate with more samples, or use --precision bf16"
    return more if kind == "int16" else f"let --precision mixed choose what needs 16 bits, {more}"


def is_in_another_range(row: LayerRow) -> bool:
    """Whether a layer is a model input much of which its codes cannot hold: what reads it has no chance."""
    return row.layer.op == INPUT and row.use is not None and row.use.saturated > ANOTHER_RANGE


def other_data(name: str, share: float, source: str) -> str:
    """What to do about a model input of which a part lies outside the range of a source."""
    return (
        f"give data and calibration in one range: {share:.2%} of the input {name} lie outside the range of {source}"
        " (is one of them scaled or normalized differently?)"
    )


def _other_data(row: LayerRow, kind: str) -> str:
    assert row.use is not None
    return other_data(row.layer.tensor, row.use.saturated, source_of_ranges(kind))


def source_of_ranges(kind: str) -> str:
    """Where the ranges of a model come from, in words."""
    return "the scales that the model carries" if kind == CARRIES_SCALES else "the calibration"


def _has_16_bits(layer: Layer) -> bool:
    return layer.codes is not None and layer.codes.dtype.itemsize > 1


def _more_bits(layer: Layer) -> str:
    if _has_16_bits(layer):
        return f"keep {layer.tensor} in float, which 16 bits do not hold (--precision bf16, or a plan that says so)"
    return f"give {layer.tensor} 16 bits (--precision mixed chooses such tensors, --precision int16 widens all)"


def _fit_in_16_bits(row: LayerRow) -> bool:
    """Whether every operand of a concatenation would have enough steps of one 16-bit scale."""
    smallest = min(part.overall.peak for part in row.parts)
    return smallest * 32767 >= ENOUGH_STEPS * row.overall.peak
