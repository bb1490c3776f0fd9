"""The ranges of tensors that a precision plan comes to: from its own numbers, or by its calibrators and its room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torq_byoc.quantize import rules
from torq_byoc.quantize.choose_ranges import ROOMY
from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.qdq.quantizable import Quantizable

Ranges = Mapping[str, Mapping[str, Range]]
"""By calibrator, then by tensor."""


def planned_ranges(form: Quantizable, ranges: Ranges, plan: PrecisionPlan, names: Iterable[str]) -> dict[str, Range]:
    """The range of every tensor under a plan.

    The plan's room goes to tensors of 8 bits whose range was calibrated without any; results of functions with bounds
    keep within these.

    Args:
        form: the model.
        ranges: by every calibrator of the plan, of every tensor.
        plan: what tensors get.
        names: of the tensors.
    """
    graph = form.graph(plan)

    def found(name: str) -> Range:
        fixed = plan.range_of(name)
        if fixed is not None:
            return Range(*fixed)
        method, maker = plan.method_of(name, form.methods.get(name)), graph.integer_producer(name)
        bounded = maker is not None and maker.op_type in rules.BOUNDED
        roomy = method == ROOMY or bounded or graph.plan.dtype_of(name) != "int8"
        return ranges[method][name] if roomy else ranges[method][name].widened(plan.room)

    return {name: found(name) for name in names}
