"""From a loaded model to one whose numbers are decided: prepared, and quantized where that is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx

from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.mixed import left_out, missed, mixed_model, remarks
from torq_byoc.compilation.options import Options, is_quantized, resolve_precision
from torq_byoc.compilation.unused_requests import unused_requests
from torq_byoc.frontend import prepare, prepare_with_notes
from torq_byoc.frontend.float_weights import float_weights
from torq_byoc.frontend.passes.nan_guards import without_nan_guards
from torq_byoc.quantize.automatic import check_rewrite_names, quantize
from torq_byoc.quantize.data import doubts
from torq_byoc.quantize.planning.planner import Planned
from torq_byoc.quantize.quantized import CalibrationSummary


@dataclass(frozen=True, eq=False)
class NumericModel:
    """A model whose numbers are decided.

    Attributes:
        prepared: what is quantized: static, folded, every node named, rewritten where that helps.
        model: the same; with QuantizeLinear and DequantizeLinear nodes where it is quantized.
        precision: "quantized" (it came that way), "int8", "int16", "bf16" or "mixed".
        notes: what was assumed on the way, as sentences.
        warnings: what makes the results doubtful, as sentences.
        calibration: the calibration of a float model that became integers.
        planned: the plan of a float model in mixed precision.
    """

    prepared: onnx.ModelProto
    model: onnx.ModelProto
    precision: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    calibration: CalibrationSummary | None = None
    planned: Planned | None = None


def numeric_model(model: onnx.ModelProto, options: Options, clock: StageClock) -> NumericModel:
    """Prepare a model, and quantize it where its precision asks for it.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: precision, calibration and its method, shapes.
        clock: takes the stages "import", "plan" and "quantize".

    Raises:
        TorqError: anything wrong with the model or the request.
    """
    check_rewrite_names(options.disabled_rewrites)
    with clock.stage("import"):
        preparation = prepare_with_notes(model, dict(options.shapes))
    found = _decided(preparation.model, options, clock)
    unused = unused_requests(found.precision, options, calibrated=found.calibration is not None)
    return replace(found, notes=(*preparation.notes, *found.notes, *unused))


def _decided(prepared: onnx.ModelProto, options: Options, clock: StageClock) -> NumericModel:
    """The numbers of a prepared model, with the notes about them."""
    precision = resolve_precision(prepared, options)
    if precision in ("int8", "int16"):
        with clock.stage("quantize"):
            quantized = quantize(
                prepared,
                options.calibration,
                precision=precision,
                method=options.calibration_method,
                disabled=options.disabled_rewrites,
            )
            warnings = (*doubts(prepared, options.calibration or {}), *quantized.table.doubts())
        notes = tuple(quantized.remarks())
        written = without_nan_guards(quantized.model)
        return NumericModel(quantized.exact, written, precision, notes, warnings, quantized.summary)
    if precision == "mixed" and options.calibration is not None and not is_quantized(prepared):
        quantized, planned = mixed_model(prepared, options, clock)
        warnings = (*doubts(prepared, options.calibration), *quantized.table.doubts(), *missed(planned))
        notes = (*quantized.table.remarks(), *remarks(planned), *left_out(options.plan, planned))
        written = without_nan_guards(quantized.model)
        return NumericModel(quantized.exact, written, precision, notes, warnings, quantized.summary, planned)
    if precision == "bf16" and (plain := float_weights(prepared)) is not prepared:
        with clock.stage("import"):
            prepared = prepare(plain)  # batch norms can be folded into weights now
    return NumericModel(prepared, prepared, precision, (), ())
