"""A quantized model, and what is to be said about its ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

from torq_byoc.quantize.calibration_table import CalibrationTable
from torq_byoc.quantize.choose_ranges import SAFE, RangeChoice


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
    """

    method: str
    samples: int
    held_out: int
    tensors: int
    settled: int
    outside: float | None
    chosen: Mapping[str, int]
    gain: float


@dataclass(frozen=True, eq=False)
class Quantized:
    """A quantized model and where its ranges come from.

    Attributes:
        model: standard QDQ ONNX.
        method: the calibration method asked for.
        table: what calibration found.
        choice: the ranges taken.
    """

    model: onnx.ModelProto
    method: str
    table: CalibrationTable
    choice: RangeChoice

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
        )

    def remarks(self) -> Iterator[str]:
        """What a reader should know, as sentences."""
        yield from self.table.remarks()
        others = {method: count for method, count in self.summary.chosen.items() if method != SAFE}
        if self.choice.gain > 0.0 and others:
            which = " and ".join(f"{count} by {method}" for method, count in others.items())
            yield (
                f"ranges of {which}, of {len(self.table.tensors)} tensors: on held-out samples the outputs gain"
                f" {self.choice.gain:.1f} dB over ranges of all values seen"
            )
