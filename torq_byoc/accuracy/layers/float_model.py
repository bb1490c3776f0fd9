"""The float model that a model with scales was made from: what damaged scales, zero points and weights show against.

Held against itself a quantized model is always right: its scales are whatever they are.
"""

from __future__ import annotations

from dataclasses import replace

import onnx

from torq_byoc.accuracy.stages import FloatModel, Stages
from torq_byoc.compilation.options import is_quantized
from torq_byoc.errors import AccuracyError, ShapeError
from torq_byoc.frontend import prepare
from torq_byoc.frontend.tensor_types import type_name

OPTION = "--float-model"


def with_float_model(stages: Stages, given: onnx.ModelProto) -> Stages:
    """The stages of a model that carries its scales, to be held against the float model that it was made from.

    Args:
        stages: of the quantized model.
        given: the float model as ``frontend.load_model`` returns it; its inputs take the shapes that the quantized
            model's have.

    Raises:
        AccuracyError: the model carries no scales; the other one is quantized, or has other inputs or outputs.
        TorqError: anything wrong with the float model.
    """
    if not stages.carries_scales:
        raise AccuracyError(
            "a float model beside a model that is float itself",
            where=OPTION,
            why="it was quantized here, or runs in bf16: it is held against itself as it was given",
            remedy=f"leave {OPTION} out, or give the quantized model as MODEL",
        )
    shapes = _shapes(stages.prepared)
    _require_alike("inputs", given, stages.prepared)
    try:
        prepared = prepare(given, shapes)
    except ShapeError as error:
        raise _unlike("input shapes", f"{error.what}: {error.why}" if error.why else error.what) from error
    if _shapes(prepared) != shapes:
        raise _unlike("input shapes", f"they are {_listed(prepared)}, and {_listed(stages.prepared)} when quantized")
    if is_quantized(prepared):
        raise AccuracyError(
            "the float model is quantized",
            where=OPTION,
            why="it quantizes results of its own",
            remedy="give the model from before quantization",
        )
    _require_alike("outputs", prepared, stages.prepared)
    return replace(stages, float_model=FloatModel(given, prepared))


def _require_alike(what: str, model: onnx.ModelProto, quantized: onnx.ModelProto) -> None:
    """Names and types of inputs or outputs must be the same ones."""
    stored = {tensor.name for tensor in model.graph.initializer}
    own, other = ([*(graph.input if what == "inputs" else graph.output)] for graph in (model.graph, quantized.graph))
    types = [{value.name: value.type.tensor_type.elem_type for value in values} for values in (own, other)]
    types[0] = {name: kind for name, kind in types[0].items() if name not in stored}
    if types[0] == types[1]:
        return
    words = [", ".join(f"{name} ({type_name(kind)})" for name, kind in one.items()) for one in types]
    raise _unlike(what, f"they are {words[0]}, and {words[1]} when quantized")


def _unlike(what: str, why: str) -> AccuracyError:
    return AccuracyError(
        f"the {what} of the float model are not those of the quantized one",
        where=OPTION,
        why=why,
        remedy="give the model that was quantized; one that takes or gives codes has no float model with the same ends",
    )


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    return {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in model.graph.input}


def _listed(model: onnx.ModelProto) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in _shapes(model).items())
