"""A precision plan without some of its rewrites, and without the names that only these make."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
import onnx

from torq_byoc.quantize.automatic import BIAS_CORRECTION
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.rewrites import Candidate
from torq_byoc.quantize.rewrites.replay import replayed


def reduced_plan(
    plan: PrecisionPlan, disabled: Collection[str], model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]]
) -> PrecisionPlan:
    """The plan with rewrites left out that are disabled.

    Entries for tensors and operators that exist because of these rewrites alone go with them; every other name stays,
    so that one that the model does not have is refused as in any plan.

    Args:
        plan: as the user gave it.
        disabled: names of rewrites (``automatic.NAMES``).
        model: a prepared float model.
        feeds: all samples.

    Raises:
        QuantizationError: a rewrite of the plan has no reason on the samples.
    """
    kept = tuple(entry for entry in plan.rewrites if entry.name not in disabled)
    correct_biases = plan.correct_biases and BIAS_CORRECTION not in disabled
    gone: set[str] = set()
    if len(kept) < len(plan.rewrites) and (plan.tensors or plan.nodes):
        gone = _names(replayed(model, feeds, plan.rewrites)) - _names(replayed(model, feeds, kept))
    return msgspec.structs.replace(
        plan,
        rewrites=kept,
        correct_biases=correct_biases,
        tensors={name: entry for name, entry in plan.tensors.items() if name not in gone},
        nodes={name: dtype for name, dtype in plan.nodes.items() if name not in gone},
    )


def _names(candidate: Candidate) -> set[str]:
    """Of operators and their results."""
    nodes = candidate.model.graph.node
    return {node.name for node in nodes}.union(*(node.output for node in nodes))
