"""What to do about an error, by where it arises."""

from __future__ import annotations

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layer_check import LayerRow

MANY_SATURATED = 0.001
"""Part of a tensor's values outside its range from which the range is to blame."""
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
    if kind in BY_KIND or row.layer.codes is None:
        return BY_KIND.get(kind, BY_KIND["bf16"])
    tensor, use = row.layer.tensor, row.use
    wider = f"give {tensor} 16 bits (--precision mixed chooses such tensors, --precision int16 widens all)"
    if row.parts:
        split = (
            f"split the concatenation {row.layer.node}: give its operands outputs of their own, "
            "so that each keeps a scale of its own"
        )
        return f"{split}; or {wider}" if _fit_in_16_bits(row) else split
    if use and use.saturated > MANY_SATURATED:
        return (
            f"calibrate with more samples, and with ones like these: {use.saturated:.2%} of {tensor} lie outside the "
            f"calibrated range; or {wider}"
        )
    if use and use.unused > MUCH_UNUSED and use.zeroed > 0:
        return f"calibrate without outliers: {use.unused:.0%} of the codes of {tensor} have no use here; or {wider}"
    return wider


def _fit_in_16_bits(row: LayerRow) -> bool:
    """Whether every operand of a concatenation would have enough steps of one 16-bit scale."""
    smallest = min(part.overall.peak for part in row.parts)
    return smallest * 32767 >= ENOUGH_STEPS * row.overall.peak
