"""In which stage and layer an error arises, and which layers inherit it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.layer_check import LayerRow

MIN_LOCAL_SQNR = 20.0
"""Decibels of a layer on its own below which quantization does harm there: a tenth of its amplitude."""
MIN_LOCAL_COSINE = 0.999
"""Of a bf16 layer on its own, from float64."""
MIN_BF16_SQNR = 27.0
"""Decibels of codes made in bf16, from float64 on the same operands: their steps may be finer than bf16.  It is the
distance that has the cosine ``MIN_LOCAL_COSINE``, and none that a wrong scale or offset keeps."""
MOST_STEPS = {1: 2.0, 2: 64.0}
"""Distance, in steps of codes of so many bytes, of a layer's integers from float64 on the same integers; more is no
rounding.  Multipliers, tables and 8-bit weights are as inexact for 16-bit results as for 8-bit ones."""
MOST_MEAN_STEPS = {1: 0.25, 2: 8.0}
"""The same on average over a layer."""
ONE_STEP = 1.0
"""No defect, however often: an exact tie may be rounded either way, and a layer may have nothing but ties."""


def layer_deviations(rows: Iterable[LayerRow]) -> tuple[Deviation, ...]:
    """What the rows say about quantization and integer rounding, in the order of the model."""
    found = []
    for row in rows:
        local = [*_rounding(row), *_quantization(row)]
        found += local or list(_inherited(row))
    return tuple(found)


def _rounding(row: LayerRow) -> Iterator[Deviation]:
    codes, steps = row.layer.codes, row.rounding
    if codes is None:
        if row.on_npu and row.local.cosine < MIN_LOCAL_COSINE:
            detail = f"cosine {row.local.cosine:.5f} from float64 on the same inputs"
            yield _deviation(row, Stage.ROUNDING, "", detail)
        return
    if steps is None or steps.worst <= ONE_STEP:
        return
    if row.layer.in_bf16 and steps.sqnr >= MIN_BF16_SQNR:
        return
    size = min(codes.dtype.itemsize, 2)
    if steps.worst > MOST_STEPS[size] or steps.mean > MOST_MEAN_STEPS[size]:
        detail = f"{steps.worst:.0f} steps at most, {steps.mean:.3f} on average, from float64 on the same integers"
        yield _deviation(row, Stage.ROUNDING, "arithmetic", detail)


def _quantization(row: LayerRow) -> Iterator[Deviation]:
    if row.layer.codes is None:
        return
    for part in row.parts:
        if part.local.sqnr < MIN_LOCAL_SQNR or part.dead_alone:
            detail = f"operand {part.name} alone: {part.local.sqnr:.1f} dB, {len(part.dead_alone)} channels constant"
            yield _deviation(row, Stage.QUANTIZATION, "unlike operand ranges", detail)
    if row.parts:
        return
    if row.local.sqnr < MIN_LOCAL_SQNR:
        detail = f"the layer alone has {row.local.sqnr:.1f} dB, at least {MIN_LOCAL_SQNR:.0f} are expected"
        yield _deviation(row, Stage.QUANTIZATION, "", detail)
    elif row.dead_alone:
        detail = f"{len(row.dead_alone)} channels are one constant each, the first is {row.dead_alone[0]}"
        yield _deviation(row, Stage.QUANTIZATION, "channels lost", detail)


def _inherited(row: LayerRow) -> Iterator[Deviation]:
    if row.overall.sqnr < MIN_LOCAL_SQNR:
        detail = f"{row.overall.sqnr:.1f} dB end to end, {row.local.sqnr:.1f} dB alone"
        yield Deviation(Stage.QUANTIZATION, row.layer.node, row.layer.tensor, False, "", detail)


def _deviation(row: LayerRow, stage: Stage, cause: str, detail: str) -> Deviation:
    return Deviation(stage, row.layer.node, row.layer.tensor, True, cause, detail)
