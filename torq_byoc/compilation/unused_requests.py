"""What of a request has no effect on a model: said, so that nobody takes it for done."""

from __future__ import annotations

from collections.abc import Iterator

from torq_byoc.compilation.options import Options
from torq_byoc.quantize.choose_ranges import AUTO
from torq_byoc.schedules.record import DecisionRecord


def unused_requests(precision: str, options: Options, *, calibrated: bool) -> tuple[str, ...]:
    """Sentences about requests without effect, for the notes of the summary.

    Args:
        precision: that the request means for the model, as ``resolve_precision`` gives it.
        options: the request.
        calibrated: whether the model was quantized with calibration data here.
    """
    about_data = () if calibrated else _without_calibration(precision, options)
    return (*_overruled_decisions(options), *about_data, *_overruled_numbers(precision, options, calibrated))


def _without_calibration(precision: str, options: Options) -> Iterator[str]:
    """What is about the quantization of a float model, where there is none."""
    if options.calibration is not None:
        reason = "bf16 needs no activation ranges" if precision == "bf16" else "the model keeps its own scales"
        yield f"{reason}: the calibration data is not used"
    if options.calibration_method != AUTO:
        yield f"nothing is calibrated: the method {options.calibration_method} has no effect"
    if options.disabled_rewrites:
        names = ", ".join(dict.fromkeys(options.disabled_rewrites))
        yield f"nothing is quantized here: that rewrites are disabled ({names}) has no effect"


def _overruled_numbers(precision: str, options: Options, calibrated: bool) -> Iterator[str]:
    """What is about other precisions than the one at hand, or decided by a precision plan."""
    if precision != "mixed":
        given = {"precision plan": options.plan, "target": options.target}
        names = [name for name, value in given.items() if value is not None]
        yield from (f"the {name} has no effect: it is for mixed precision" for name in names)
    elif calibrated and options.plan is not None and options.calibration_method != AUTO:
        yield f"the precision plan names the ranges' methods: the method {options.calibration_method} has no effect"
    if precision == "quantized" and options.precision in ("int8", "int16"):
        yield f"the model is quantized and keeps its own types: precision {options.precision} has no effect"


def _overruled_decisions(options: Options) -> list[str]:
    """What a record decides that a disabled pass takes away."""
    decisions, disabled = options.decisions or DecisionRecord(), options.disabled_passes
    overrides = decisions.nodes.values()
    splits = [override for override in overrides if override.split_axis not in (None, (None,))]
    taken = {
        "fusion": ("groups", decisions.groups),
        "residency": ("resident tensors", [name for name, value in decisions.resident.items() if value]),
        "slice-split": ("split axes and slices", [*splits, *decisions.slices]),
        "double-buffering": ("second buffers", [override for override in overrides if override.buffers == 2]),
    }
    return [
        f"the pass {name} is disabled: the {what} of the schedule have no effect"
        for name, (what, entries) in taken.items()
        if name in disabled and entries
    ]
