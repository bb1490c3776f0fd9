"""From a loaded model to one that is valid, static, folded and in the few forms that later stages know."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import inliner

from torq_byoc.errors import InternalError
from torq_byoc.frontend.input_shapes import bind_inputs, fix_input_shapes
from torq_byoc.frontend.passes import PASSES, REQUIRED, GraphEditor
from torq_byoc.frontend.passes.expand_functions import expand_functions
from torq_byoc.frontend.passes.group_normalization import group_normalization
from torq_byoc.frontend.passes.mean_variance import mean_variance
from torq_byoc.frontend.passes.name_nodes import name_nodes
from torq_byoc.frontend.shapes import infer_shapes
from torq_byoc.frontend.validator import check_semantics, validate
from torq_byoc.frontend.validator.emptiness import check_emptiness
from torq_byoc.frontend.validator.expansion import check_expansions
from torq_byoc.frontend.validator.operand_types import check_operand_types
from torq_byoc.frontend.validator.types import check_element_types

_OLDEST_IR = 8
"""Before IR version 4 every stored tensor had to be a graph input as well; here none is."""

_MAX_ROUNDS = 50
"""Far more than any graph needs: each round folds at least one node of what the last one uncovered."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """A prepared model and what was assumed on the way, as sentences for the user."""

    model: onnx.ModelProto
    notes: tuple[str, ...]


def prepare(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    bind: Mapping[str, np.ndarray] | None = None,
    disabled: Collection[str] = (),
) -> onnx.ModelProto:
    """Validate and simplify a model; the given one is not changed.

    Args:
        model: as ``load_model`` returns it.
        shapes: input name -> fixed shape, for inputs with unknown dimensions.
        bind: input name -> value that it always has; the input disappears.
        disabled: names of clean-up passes (``passes.PASSES``) to leave out; required ones run regardless.

    Returns:
        A model with the same inputs (but for bound ones), outputs and results.  Every node has a unique
        name, and shapes are in ``value_info``.

    Raises:
        ModelFileError, ShapeError, QuantizationError, UnsupportedOpError: see ``validate``; ShapeError also
            when input dimensions stay unknown.
    """
    return prepare_with_notes(model, shapes, bind=bind, disabled=disabled).model


def prepare_with_notes(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    bind: Mapping[str, np.ndarray] | None = None,
    disabled: Collection[str] = (),
) -> Preparation:
    """``prepare``, with the assumptions it made (such as a batch dimension of 1)."""
    validate(model)
    result = onnx.ModelProto()
    result.CopyFrom(inliner.inline_local_functions(model) if model.functions else model)
    result.ir_version = max(result.ir_version, _OLDEST_IR)
    notes = bind_inputs(result, bind or {}) + fix_input_shapes(result, shapes or {})
    result = _in_simpler_operators(result)
    _forget_shapes(result.graph)
    check_expansions(result)
    infer_shapes(result, strict=True)
    check_semantics(result)
    _simplify(result, disabled)
    infer_shapes(result, strict=True)  # again: what was folded may be a shape, and contradict another one
    check_semantics(result)
    check_operand_types(result)
    check_element_types(result)
    check_emptiness(result)
    return Preparation(result, tuple(notes))


def _in_simpler_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write out what is defined by other operators; before shapes are inferred, which knows some of them badly."""
    name_nodes(model.graph)
    model = expand_functions(model)
    editor = GraphEditor(model)
    group_normalization(editor)
    mean_variance(editor)
    editor.commit()
    name_nodes(model.graph)
    return model


def _forget_shapes(graph: onnx.GraphProto) -> None:
    """Drop declared shapes of everything but inputs: they were written for other input shapes."""
    del graph.value_info[:]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _simplify(model: onnx.ModelProto, disabled: Collection[str]) -> None:
    chosen = [p for p in PASSES if p.name not in disabled or p.name in REQUIRED]
    for _ in range(_MAX_ROUNDS):
        changes = 0
        for clean_up in chosen:
            editor = GraphEditor(model)
            with np.errstate(all="ignore"):  # weights may hold infinities and NaN; they stay what they are
                changed = clean_up.apply(editor)
            editor.commit()
            if changed:
                changes += changed
                _forget_shapes(model.graph)
                infer_shapes(model)
                check_expansions(model)
        if not changes:
            name_nodes(model.graph)
            return
    raise InternalError(
        "The clean-up passes do not come to an end",
        where="graph",
        why=f"still {changes} changes after {_MAX_ROUNDS} rounds",
        remedy="leave passes out with --disable-pass, and report the model",
    )
