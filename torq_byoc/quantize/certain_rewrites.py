"""Rewrites that lose nothing whatever the model: done before anything else, without being judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx

from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.qdq.quantizable import OPSETS, quantizable
from torq_byoc.quantize.quantized import AppliedRewrite
from torq_byoc.quantize.rewrites import CERTAIN, Candidate, anywhere
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.replay import divided


def with_certain_rewrites(
    model: onnx.ModelProto, calibration: Mapping[str, np.ndarray], disabled: Iterable[str]
) -> tuple[Candidate, tuple[AppliedRewrite, ...]]:
    """A prepared float model with the certain rewrites that something speaks for, and which these are.

    Args:
        model: the model.
        calibration: all samples; some of them are run where the model has what a rewrite is about.
        disabled: names of rewrites to leave out.

    Raises:
        CalibrationError: the data does not fit the model.
        QuantizationError: the model's opset cannot be raised.
    """
    candidate = Candidate(model)
    applied: list[AppliedRewrite] = []
    for rewrite in CERTAIN:
        if rewrite.name in set(disabled) or not rewrite.concerns(candidate.model):
            continue
        statistics = ChannelStatistics(candidate.model)
        ready = quantizable(candidate.model, OPSETS["int8"], correct_biases=False).model
        calibrate(ready, divided(model, tuple(samples(model, calibration)))[0], (), others=[statistics.add])
        for proposal in rewrite.propose(candidate, statistics, anywhere):
            candidate = proposal.candidate
            applied.append(AppliedRewrite(rewrite.name, proposal.places, proposal.reason, strength=proposal.strength))
    return candidate, tuple(applied)
