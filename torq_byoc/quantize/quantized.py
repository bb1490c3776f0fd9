"""A quantized model, and what is to be said about its ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

from torq_byoc.quantize.calibration_table import CalibrationTable
from torq_byoc.quantize.choose_ranges import ALTERNATIVES, RangeChoice


@dataclass(frozen=True)
class AppliedRewrite:
    """A rewrite of the float model that was kept.

    Attributes:
        name: of the rewrite (``rewrites.REWRITES``).
        places: nodes that it changed.
        reason: what spoke for it.
        before, after: SQNR of the worst part of the outputs in dB, on the samples it was judged on; None where it is
            not judged.
        strength: how far it goes, where it has several alternatives.
    """

    name: str
    places: tuple[str, ...]
    reason: str
    before: float | None = None
    after: float | None = None
    strength: float = 1.0

    def __str__(self) -> str:
        where = ", ".join(self.places[:3]) + (f" and {len(self.places) - 3} more" if len(self.places) > 3 else "")
        gain = "" if self.before is None else f"; worst output {self.before:.1f} -> {self.after:.1f} dB"
        return f"{self.name} at {where}: {self.reason}{gain}"


@dataclass(frozen=True)
class CalibrationSummary:
    """A calibration in a few numbers, for reports.

    Attributes:
        method: the method asked for.
        samples: number of calibration samples.
        held_out: how many of them were held out.
        tensors: number of calibrated tensors.
        settled: how many of them more samples are unlikely to widen much.
        outside: largest part of a tensor's held-out values outside its range; None when none were held out.
        chosen: number of tensors by the method that their ranges come from.
        gain: decibels that the choice gains over the extremes on held-out samples.
        rewrites: what was done to the float model before, in order.
    """

    method: str
    samples: int
    held_out: int
    tensors: int
    settled: int
    outside: float | None
    chosen: Mapping[str, int]
    gain: float
    rewrites: tuple[AppliedRewrite, ...]


@dataclass(frozen=True, eq=False)
class Quantized:
    """A quantized model and where its ranges come from.

    Attributes:
        model: standard QDQ ONNX.
        method: the calibration method asked for.
        table: what calibration found.
        choice: the ranges taken.
        exact: the float model that ``model`` is a rounding of: the user's own, rewritten where that helps.
        rewrites: what was done to it, in order.
    """

    model: onnx.ModelProto
    method: str
    table: CalibrationTable
    choice: RangeChoice
    exact: onnx.ModelProto
    rewrites: tuple[AppliedRewrite, ...] = ()

    @property
    def summary(self) -> CalibrationSummary:
        """The calibration in a few numbers."""
        tensors = self.table.tensors.values()
        return CalibrationSummary(
            method=self.method,
            samples=self.table.samples,
            held_out=self.table.held_out,
            tensors=len(tensors),
            settled=sum(tensor.settled for tensor in tensors),
            outside=max((each.outside for each in tensors if each.outside is not None), default=None),
            chosen=dict(sorted(Counter(self.choice.methods.values()).items())),
            gain=self.choice.gain,
            rewrites=self.rewrites,
        )

    def remarks(self) -> Iterator[str]:
        """What a reader should know, as sentences."""
        yield from map(str, self.rewrites)
        yield from self.table.remarks()
        others = {method: count for method, count in self.summary.chosen.items() if method in ALTERNATIVES}
        if self.choice.gain > 0.0 and others:
            which = " and ".join(f"{count} by {method}" for method, count in others.items())
            yield (
                f"ranges of {which}, of {len(self.table.tensors)} tensors: on held-out samples the outputs gain"
                f" {self.choice.gain:.1f} dB over ranges of all values seen"
            )
