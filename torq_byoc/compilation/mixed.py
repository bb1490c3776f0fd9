"""A float model in mixed precision: planned for a target, or as a given plan says."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.pricing import price_for
from torq_byoc.quantize import quantization_of
from torq_byoc.quantize.planning.planner import Planned, judged_plan, plan_precision
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.quantized import Quantized


def mixed_model(model: onnx.ModelProto, options: Options, clock: StageClock) -> tuple[Quantized, Planned]:
    """The quantized model and the plan that it was made by.

    Args:
        model: a prepared float model.
        options: calibration, machine; a plan, or what a plan has to reach.
        clock: takes the stages "plan" and "quantize".

    Raises:
        CalibrationError: the data does not fit the model.
        QuantizationError: the plan is not for this model.
    """
    calibration = options.calibration
    assert calibration is not None, "resolve_precision asks for it"
    with clock.stage("plan"):
        price = price_for(options.config)
        if options.plan is None:
            method = options.calibration_method
            planned = plan_precision(
                model, calibration, price, options.target, method, options.progress, options.disabled_rewrites
            )
        else:
            planned = judged_plan(model, calibration, options.plan, price, options.target, options.disabled_rewrites)
    with clock.stage("quantize"):
        return quantization_of(model, calibration, plan=planned.plan), planned


def remarks(planned: Planned) -> Iterator[str]:
    """What the plan does and what it costs, as sentences."""
    for rewrite in planned.plan.rewrites:
        yield f"{rewrite.name} at {', '.join(rewrite.places)}"
    tensors, nodes = planned.plan.tensors.values(), len(planned.plan.nodes)
    wide = sum(planned.plan.dtype_of(name) == "int16" for name in planned.plan.tensors)
    ranges = sum(entry.method is not None or entry.low is not None for entry in tensors) - wide
    room = f" and room ({planned.plan.room:g} times)" if planned.plan.room > 1 else ""
    expected = planned.cost.cycles / planned.int8_cost.cycles if planned.int8_cost.cycles else 1.0
    yield (
        f"mixed precision: {wide} int16 tensors, {max(0, ranges)} other ranges{room}, {nodes} bf16 operators;"
        f" output SQNR {planned.reached.sqnr:.1f} dB, cosine {planned.reached.cosine:.6f}"
        f" (8 bits everywhere: {planned.int8.sqnr:.1f} dB, {planned.int8.cosine:.6f});"
        f" operators expected to take {expected:.2f} times the cycles of 8 bits"
    )


def left_out(given: PrecisionPlan | None, planned: Planned) -> Iterator[str]:
    """What a given plan names that goes with its disabled rewrites, as sentences."""
    if given is None:
        return
    taken = planned.plan
    names = {*given.tensors, *given.nodes} - {*taken.tensors, *taken.nodes}
    if names:
        yield f"the plan's entries for {', '.join(sorted(names))} have no effect: rewrites that make them are disabled"


def missed(planned: Planned) -> Iterator[str]:
    """What of the target is not reached, as sentences."""
    target, reached = planned.target, planned.reached
    for name, wanted, found in (
        ("output SQNR in dB", target.sqnr, reached.sqnr),
        ("output cosine", target.cosine, reached.cosine),
        ("metric", target.least, reached.metric),
    ):
        if wanted is not None and found is not None and found < wanted:
            yield f"the target is missed: {name} {found:.6g}, asked for {wanted:.6g}; this is the best plan found"
