"""``torq quantize``: float ONNX in, standard QDQ ONNX out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torq_byoc.cli.options import (
    PATH,
    Name,
    Outcome,
    calibration_method_option,
    disable_rewrite_option,
    hardware_option,
    json_option,
    mixed_options,
    planning_options,
    progress,
    refuse_unused,
)
from torq_byoc.cli.request import exit_code_of, files_read, options_of, plan_to_write, refuse_container, refuse_given
from torq_byoc.cli.targets import check_targets
from torq_byoc.errors import ModelFileError, QuantizationError
from torq_byoc.files import shown_name, write_together

if TYPE_CHECKING:
    from torq_byoc.compilation.numeric_model import NumericModel

PRECISIONS = ("int8", "int16", "mixed")
_MOST_BYTES = (1 << 31) - 1
"""What a file of this format can hold."""


@click.command(name="quantize")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, help="Model to write; default MODEL.qdq.onnx.")
@click.option("--calib", type=PATH, required=True, help="Calibration npz, or a folder of them.")
@click.option(
    "--precision",
    type=Name("precision", PRECISIONS),
    default="int8",
    show_default=True,
    help="Type of activations; mixed plans int8, int16 and float for a target.  Weights are int8, a scale a channel.",
)
@mixed_options
@planning_options
@hardware_option
@calibration_method_option
@disable_rewrite_option
@click.option("--shape", "shapes", multiple=True, metavar="NAME:1x3x224x224", help="Fix an input's shape.")
@json_option
def command(
    model: Path,
    output: Path | None,
    planned: Path | None,
    as_json: bool,
    **request: Any,
) -> Outcome:
    """Quantize MODEL into a QDQ model, which `torq compile` takes as it is and onnxruntime runs."""
    from torq_byoc.report.precision_plan import plan_facts
    from torq_byoc.report.tables import print_remarks

    if request["precision"] != "mixed":
        refuse_given({"--save-precision-plan": planned})
        refuse_unused(["hw"], "only mixed precision looks at what the machine takes")
    output = output or Path(f"{model.stem}.qdq.onnx")
    check_targets({"-o": output, "--save-precision-plan": planned}, {"MODEL": model, **files_read(**request)})
    quantized = _quantized(model, **request)
    data = _serialized(quantized, model)
    files = {output: data}
    if planned:
        files[planned] = plan_to_write(quantized.planned)
    write_together(files)
    kinds = [node.op_type for node in quantized.model.graph.node]
    facts = {
        "model": shown_name(model),
        "output": str(output),
        "precision": quantized.precision,
        "calibration": asdict(quantized.calibration) if quantized.calibration else None,
        "plan": plan_facts(quantized.planned),
        "bytes": len(data),
        "nodes": len(kinds),
        "quantized_tensors": kinds.count("QuantizeLinear"),
        "notes": list(quantized.notes),
        "warnings": list(quantized.warnings),
    }
    if not as_json:
        count = facts["quantized_tensors"]
        click.echo(f"{count} tensors are quantized ({quantized.precision}) in a model of {len(data)} bytes")
        print_remarks(facts)
        for path in files:
            click.echo(f"wrote {path}")
    return Outcome(facts, exit_code_of(quantized.planned))


def _quantized(model: Path, **request: Any) -> NumericModel:
    """The model as `torq compile` quantizes it.

    Raises:
        QuantizationError: it is quantized already.
        TorqError: anything else wrong with the model or the data.
    """
    from torq_byoc.compilation.clock import StageClock
    from torq_byoc.compilation.numeric_model import numeric_model
    from torq_byoc.frontend import load_model

    refuse_container(model)
    with progress(None, f"quantizing {shown_name(model)}") as step:
        options = options_of(step=step, **request)
        quantized = numeric_model(load_model(model), options, StageClock(options.progress))
    if quantized.calibration is None:
        raise QuantizationError(
            "the model is quantized already",
            where=str(model),
            why="its operators on integers or its QuantizeLinear nodes fix its scales",
            remedy="compile it as it is with `torq compile`, or start from the float model",
        )
    return quantized


def _serialized(quantized: NumericModel, source: Path) -> bytes:
    """The file's bytes, the same for the same model.

    Raises:
        ModelFileError: they are too many for one file.
    """
    size = quantized.model.ByteSize()
    if size > _MOST_BYTES:
        raise ModelFileError(
            "the quantized model does not fit into one file",
            where=str(source),
            why=f"it takes {size} bytes, an ONNX file holds {_MOST_BYTES}",
            remedy="split the model, or compile it directly with `torq compile --calib`",
        )
    return quantized.model.SerializeToString(deterministic=True)
