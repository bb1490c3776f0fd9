"""A container in place of a compilation: what it was compiled for, and whether it is this model's.

A container holds integers only.  The stages before them are made anew from the model with the container's machine,
precision and decisions, and for int8 and int16 with the calibration data that it was compiled with: scales are a
function of that data alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torq_byoc.accuracy.stages import Stages
from torq_byoc.compilation.options import Options
from torq_byoc.compiled_model import CompiledModel, TensorSpec
from torq_byoc.errors import AccuracyError
from torq_byoc.npu_model.container import unpack_container
from torq_byoc.npu_model.program import Program


def options_of_container(compiled: CompiledModel, options: Options, path: Path) -> Options:
    """Options that lead to a container's stages.

    Args:
        compiled: from the container.
        options: the user's: calibration, input shapes and precision plan count.
        path: of the container, for messages.

    Raises:
        AccuracyError: its ranges came from data, and none is given; a plan is given, and it has none.
    """
    precision = compiled.facts.precision
    if precision != "mixed" and (options.plan or options.target):
        raise AccuracyError(
            f"a precision plan or target for a container without one: its precision is {precision}",
            where=str(path),
            why="plans and targets are about mixed precision",
            remedy="leave them out",
        )
    if precision in ("int8", "int16") and options.calibration is None:
        raise AccuracyError(
            f"an {precision} container is checked with the data that it was calibrated with",
            where=str(path),
            why="it holds integers, and the scales behind them come from that data",
            remedy="give --calib and --calibration-method as they were given to torq compile",
        )
    # Not ``partition.program``, which the verifier has to accept: one that it refuses is for the check to find.
    blobs = (partition.blob for partition in compiled.partitions)
    machine = next((Program.from_sections(unpack_container(blob)).config for blob in blobs), options.config)
    return replace(
        options,
        config=machine,
        precision="auto" if precision == "quantized" else precision,
        decisions=compiled.decisions() if compiled.partitions else None,
    )


def require_same_model(stages: Stages, path: Path) -> None:
    """Refuse a container that another model was compiled to.

    Raises:
        AccuracyError: inputs or outputs differ.
    """
    facts = stages.compiled.facts
    graph = stages.precise.graph
    for what, own, values in (("inputs", facts.inputs, graph.input), ("outputs", facts.outputs, graph.output)):
        names = tuple(value.name for value in values)
        if names != tuple(spec.name for spec in own):
            raise _another(what, ", ".join(names), _names(own), path)
    shapes = tuple(tuple(d.dim_value for d in value.type.tensor_type.shape.dim) for value in graph.input)
    if shapes != tuple(spec.shape for spec in facts.inputs):
        raise _another("input shapes", str([list(shape) for shape in shapes]), _shapes(facts.inputs), path)


def _names(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(spec.name for spec in specs)


def _shapes(specs: tuple[TensorSpec, ...]) -> str:
    return str([list(spec.shape) for spec in specs])


def _another(what: str, model: str, container: str, path: Path) -> AccuracyError:
    return AccuracyError(
        "the container was compiled from another model",
        where=str(path),
        why=f"{what} of the model: {model}; of the container: {container}",
        remedy="give the model that it was compiled from, with the same --shape",
    )
