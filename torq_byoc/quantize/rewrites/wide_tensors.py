"""Which tensors of a candidate can have codes of 16 bits."""

from __future__ import annotations

from collections.abc import Iterable

from torq_byoc.errors import QuantizationError
from torq_byoc.quantize.rewrites.candidate import Candidate, quantizable_candidate


def can_be_wide(candidate: Candidate, tensors: Iterable[str]) -> tuple[str, ...]:
    """Those of some tensors that have a quantization of their own, in order.

    None where the model cannot be raised to the operator set that has codes of 16 bits.
    """
    names = tuple(name for name in tensors if name not in candidate.wide)
    if not names:
        return ()
    try:
        form = quantizable_candidate(candidate.with_wide(names), correct_biases=False)
    except QuantizationError:
        return ()
    graph = form.graph()
    quantized = set(graph.to_observe())
    return tuple(name for name in names if name in quantized and graph.leader(name) == name)
