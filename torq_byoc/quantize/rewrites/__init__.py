"""Rewrites of float models that compute the same in real arithmetic and lose less when they are quantized.

Each is one file that shows before and after, and one line here; the order is the one in which they are tried.
"""

from __future__ import annotations

from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Rewrite, anywhere
from torq_byoc.quantize.rewrites.concat_in_float import concat_in_float
from torq_byoc.quantize.rewrites.equalize_channels import equalize_channels
from torq_byoc.quantize.rewrites.scale_outputs import scale_outputs
from torq_byoc.quantize.rewrites.split_outliers import split_outliers

REWRITES: tuple[Rewrite, ...] = tuple(
    Rewrite(function.__name__, function)
    for function in (concat_in_float, split_outliers, equalize_channels, scale_outputs)
)

__all__ = ["REWRITES", "Candidate", "Proposal", "Rewrite", "anywhere"]
