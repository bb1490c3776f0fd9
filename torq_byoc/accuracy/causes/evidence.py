"""What a cause is found by, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.lint import LintFinding
from torq_byoc.accuracy.verdict.output_check import OutputRow
from torq_byoc.quantize.output_parts import OutputPart

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Cause:
    """The layer that is worst, or what is wrong before any layer.

    Attributes:
        stage, node, tensor: where the error arises; "as given" with what a finding of the lint is about.
        detail: its figure, in a sentence.
        proof: what the worst output part would gain without it; empty when that was not tried.
        remedy: what to do.
    """

    stage: Stage
    node: str
    tensor: str
    detail: str
    proof: str
    remedy: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the check found, on which samples.

    Attributes:
        rows, outputs, deviations: figures and errors.
        lint: what is wrong with model and data as given.
        outside: part of the evaluation values outside the calibration data's range by model input.
        parts: of the outputs.
        samples: feeds, and the float model's outputs for them.
        values: gives the float model's values of layers for feeds.
    """

    rows: Sequence[LayerRow]
    outputs: Sequence[OutputRow]
    deviations: Sequence[Deviation]
    lint: Sequence[LintFinding]
    outside: Mapping[str, float]
    parts: Sequence[OutputPart]
    samples: Sequence[tuple[Feeds, Feeds]]
    values: Callable[[Feeds], Feeds]
