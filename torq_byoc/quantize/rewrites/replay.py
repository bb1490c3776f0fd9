"""Rewrites that are decided, applied again: by a plan in place of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from torq_byoc.errors import QuantizationError, require_known
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.precision_plan import PlannedRewrite
from torq_byoc.quantize.qdq.quantizable import OPSETS, quantizable
from torq_byoc.quantize.rewrites import CERTAIN, REWRITES, Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import FEWEST_VALUES, ChannelStatistics, most_rows

Feed = Mapping[str, np.ndarray]

MOST_JUDGED = 4
"""Samples that candidates are judged on."""
MOST_CALIBRATING = 8
"""Samples that give candidates their ranges and rewrites their reasons; what is chosen is quantized with all."""


def divided(model: onnx.ModelProto, feeds: Sequence[Feed]) -> tuple[Sequence[Feed], Sequence[Feed]]:
    """The samples that rewrites are made with, and those that they are judged on; the same ones where they are few.

    Of models that see a few rows a sample, such as one of a dense network, there are as many times more of both as
    give channels ``FEWEST_VALUES``.

    Args:
        model: a prepared float model.
        feeds: all samples.
    """
    times = -(-FEWEST_VALUES // (MOST_CALIBRATING * most_rows(model)))
    calibrating, judged = times * MOST_CALIBRATING, times * MOST_JUDGED
    held_out = min(judged, len(feeds) // 4)
    return feeds[: len(feeds) - held_out][:calibrating], feeds[-(held_out or judged) :]


def replayed(model: onnx.ModelProto, feeds: Sequence[Feed], rewrites: Sequence[PlannedRewrite]) -> Candidate:
    """The model with rewrites applied in order; with the samples that they were found on, as they were found.

    Args:
        model: a prepared float model.
        feeds: all samples.
        rewrites: what to apply, and where.

    Raises:
        QuantizationError: there is no such rewrite, or nothing on the samples speaks for it at one of its places.
    """
    candidate = Candidate(model)
    for entry in rewrites:
        statistics = ChannelStatistics(candidate.model)
        ready = quantizable(candidate.model, OPSETS["int8"], correct_biases=False).model
        calibrate(ready, divided(model, feeds)[0], (), others=[statistics.add])
        candidate = _proposal(entry, candidate, statistics).candidate
    return candidate


def _proposal(entry: PlannedRewrite, candidate: Candidate, statistics: ChannelStatistics) -> Proposal:
    """What a rewrite proposes at the places of an entry, in the strength that it asks for."""
    known = {rewrite.name: rewrite for rewrite in (*CERTAIN, *REWRITES)}
    require_known(QuantizationError, "rewrite", [entry.name], sorted(known), where="rewrites of the precision plan")
    nodes = [node.name for node in candidate.model.graph.node]
    where = f"places of {entry.name} in the precision plan"
    require_known(QuantizationError, "operator", entry.places, nodes, where=where)
    found = list(known[entry.name].propose(candidate, statistics, set(entry.places).issuperset))
    changed = {place for proposal in found for place in proposal.places}
    left = [place for place in entry.places if place not in changed]
    if left or not found:
        raise QuantizationError(
            f"the rewrite {entry.name} of the precision plan has no reason",
            where=left[0] if left else entry.name,
            why="nothing on the calibration data speaks for it there, or it goes with places that were left out",
            remedy="take the place out of the plan, put all places back, or give the data that the plan was made with",
        )
    strengths = {proposal.strength: proposal for proposal in found}
    if entry.strength not in strengths:
        raise QuantizationError(
            f"the rewrite {entry.name} of the precision plan has no strength {entry.strength:g}",
            where=entry.places[0],
            remedy=f"use one of {', '.join(f'{strength:g}' for strength in strengths)}",
        )
    return strengths[entry.strength]
