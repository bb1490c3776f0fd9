"""Rewrites of float models that compute the same in real arithmetic and lose less when they are quantized.

Each is one file that shows before and after, and one line here; the order is the one in which they are tried.
``CERTAIN`` ones lose nothing anywhere and are not judged.
"""

from __future__ import annotations

from torq_byoc.quantize.rewrites.candidate import Candidate, Proposal, Rewrite, anywhere
from torq_byoc.quantize.rewrites.concat_in_float import concat_in_float
from torq_byoc.quantize.rewrites.equalize_channels import equalize_channels
from torq_byoc.quantize.rewrites.equalize_depthwise import equalize_depthwise, has_depthwise
from torq_byoc.quantize.rewrites.scale_outputs import scale_outputs
from torq_byoc.quantize.rewrites.split_outliers import split_outliers
from torq_byoc.quantize.rewrites.wide_outputs import wide_outputs
from torq_byoc.quantize.rewrites.wide_statistics import wide_statistics

CERTAIN: tuple[Rewrite, ...] = (Rewrite(equalize_depthwise.__name__, equalize_depthwise, has_depthwise),)
REWRITES: tuple[Rewrite, ...] = tuple(
    Rewrite(function.__name__, function)
    for function in (concat_in_float, wide_outputs, wide_statistics, split_outliers, equalize_channels, scale_outputs)
)

__all__ = ["CERTAIN", "REWRITES", "Candidate", "Proposal", "Rewrite", "anywhere"]
