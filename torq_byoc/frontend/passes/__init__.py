"""The clean-up passes of ``prepare``, in the order they run; each is one file that shows before and after.

A pass is a function of a :class:`~torq_byoc.frontend.passes.editor.GraphEditor` that returns how much it
changed.  The list is run until nothing changes: folding makes shapes known, which makes more foldable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torq_byoc.frontend.passes.affine_to_depthwise import affine_to_depthwise
from torq_byoc.frontend.passes.batch_norm_to_affine import batch_norm_to_affine
from torq_byoc.frontend.passes.binary_chains import binary_chains
from torq_byoc.frontend.passes.byte_codes import byte_codes
from torq_byoc.frontend.passes.channel_weights import channel_weights
from torq_byoc.frontend.passes.early_bias import early_bias
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.frontend.passes.empty_tensors import empty_tensors
from torq_byoc.frontend.passes.explicit_padding import explicit_padding
from torq_byoc.frontend.passes.fold_affine import fold_affine
from torq_byoc.frontend.passes.fold_constants import fold_constants
from torq_byoc.frontend.passes.inline_if import inline_if
from torq_byoc.frontend.passes.merge_transposes import merge_transposes
from torq_byoc.frontend.passes.nan_guards import nan_guards
from torq_byoc.frontend.passes.one_axis_softmax import one_axis_softmax
from torq_byoc.frontend.passes.plain_gemm import plain_gemm
from torq_byoc.frontend.passes.qoperators import qoperator_to_qdq
from torq_byoc.frontend.passes.remove_dead import remove_dead
from torq_byoc.frontend.passes.remove_identities import remove_identities
from torq_byoc.frontend.passes.signed_codes import signed_codes
from torq_byoc.frontend.passes.split_dequantize import split_dequantize
from torq_byoc.frontend.passes.store_constants import store_constants
from torq_byoc.frontend.passes.unroll_recurrent import unroll_recurrent
from torq_byoc.frontend.passes.written_softmax import written_softmax


@dataclass(frozen=True)
class CleanUp:
    """A pass with the name it goes by in reports and in ``--disable-pass``."""

    name: str
    apply: Callable[[GraphEditor], int]


PASSES: tuple[CleanUp, ...] = tuple(
    CleanUp(function.__name__, function)
    for function in (
        store_constants,
        byte_codes,
        signed_codes,
        one_axis_softmax,
        written_softmax,
        fold_constants,
        empty_tensors,
        inline_if,
        remove_identities,
        nan_guards,
        merge_transposes,
        explicit_padding,
        qoperator_to_qdq,
        unroll_recurrent,
        early_bias,
        batch_norm_to_affine,
        fold_affine,
        affine_to_depthwise,
        binary_chains,
        plain_gemm,
        channel_weights,
        remove_dead,
        split_dequantize,
    )
)

REQUIRED = frozenset(
    {
        "store_constants",
        "byte_codes",
        "channel_weights",
        "empty_tensors",
        "qoperator_to_qdq",
        "unroll_recurrent",
        "inline_if",
        "one_axis_softmax",
    }
)
"""Passes that later stages rely on; they cannot be disabled."""

__all__ = ["PASSES", "REQUIRED", "CleanUp", "GraphEditor"]
