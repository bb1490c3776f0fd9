"""Quantization as a user gets it: the rewrites that help are found, tried and applied without being asked for.

Rewrites that lose nothing are done first (``certain_rewrites``).  The plain quantization comes next, and while it looks
at the samples, so do the other rewrites.  Where none sees a reason,
as with most networks, that is all.  Otherwise candidates are quantized with some of the samples and judged on others,
and a rewrite stays when the outputs come nearer to those of the float model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import onnx

from torq_byoc.errors import QuantizationError, require_known
from torq_byoc.quantize.certain_rewrites import with_certain_rewrites
from torq_byoc.quantize.choose_ranges import AUTO, SAFE
from torq_byoc.quantize.quantization import quantization_of
from torq_byoc.quantize.quantized import Quantized
from torq_byoc.quantize.rewrite_search import have_reason, search_rewrites
from torq_byoc.quantize.rewrites import CERTAIN, REWRITES, Rewrite
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics

BIAS_CORRECTION = "bias_correction"
"""What ``quantization_of`` does by itself, by the name under which it can be disabled."""
NAMES = (*(rewrite.name for rewrite in (*CERTAIN, *REWRITES)), BIAS_CORRECTION)


def quantize(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray] | None,
    *,
    precision: str = "int8",
    method: str = AUTO,
    disabled: Collection[str] = (),
    progress: Callable[[], None] | None = None,
) -> Quantized:
    """Quantize a prepared float model, rewritten where that helps.

    Args:
        model: as ``frontend.prepare`` returns it.
        calibration: arrays by input name; the first axis counts samples.
        precision: type of activations, "int8" or "int16".
        method: calibrator, see ``quantization_of``; candidates are compared with ranges of all values seen.
        disabled: names of rewrites (``NAMES``) to leave out.
        progress: called after each sample of every calibration.

    Raises:
        CalibrationError: the data does not fit the model, or is missing.
        QuantizationError: an unknown name in ``disabled``, or see ``quantization_of``.
    """
    check_rewrite_names(disabled)
    rounded = partial(
        quantization_of, precision=precision, progress=progress, correct_biases=BIAS_CORRECTION not in disabled
    )
    if calibration is None:
        return rounded(model, calibration, method=method)
    candidate, certain = with_certain_rewrites(model, calibration, disabled)
    exact, chosen = candidate.model, enabled_rewrites(disabled)
    statistics = ChannelStatistics(exact)
    plain = replace(rounded(exact, calibration, method=method, watch=statistics.add), rewrites=certain)
    if not have_reason(chosen, exact, statistics):
        return plain
    best, applied = search_rewrites(chosen, exact, calibration, partial(rounded, method=SAFE))
    if not applied:
        return plain
    quantized = rounded(
        best.model, calibration, method=method, floats=best.floats, methods=best.methods, wide=best.wide
    )
    return replace(quantized, rewrites=(*certain, *applied))


def enabled_rewrites(disabled: Collection[str]) -> list[Rewrite]:
    """The rewrites that are not disabled, in the order in which they are tried."""
    return [rewrite for rewrite in REWRITES if rewrite.name not in disabled]


def check_rewrite_names(disabled: Collection[str]) -> None:
    """Refuse names of rewrites that do not exist.

    Raises:
        QuantizationError: there is no such rewrite.
    """
    require_known(QuantizationError, "rewrite", disabled, sorted(NAMES), where="--disable-rewrite")
