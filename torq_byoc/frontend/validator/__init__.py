"""Is this model what ONNX says it is?  Everything is checked before anything of the model's size is allocated.

onnx's own checker runs last among the formal checks: ours come first because it trusts lengths and counts.
"""

from __future__ import annotations

import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.shapes import infer_shapes
from torq_byoc.frontend.validator.axes import check_axes
from torq_byoc.frontend.validator.expansion import check_expansions, check_sizes
from torq_byoc.frontend.validator.layers import check_layers
from torq_byoc.frontend.validator.operators import check_operators
from torq_byoc.frontend.validator.quantization import check_quantization
from torq_byoc.frontend.validator.size import check_size
from torq_byoc.frontend.validator.structure import check_structure
from torq_byoc.frontend.validator.tensors import check_tensors
from torq_byoc.frontend.validator.text import check_text

__all__ = ["check_semantics", "validate"]


def validate(model: onnx.ModelProto) -> None:
    """Check a loaded model; it is not changed.

    Raises:
        ModelFileError: damaged or contradictory structure, unknown element types or operator sets.
        ShapeError: impossible dimensions, axes that do not exist, tensors beyond any memory.
        QuantizationError: scales or zero points that the arithmetic cannot express.
        UnsupportedOpError: operators that do not exist, all of them at once.
    """
    check_size(model)
    check_text(model)
    check_tensors(model)
    check_structure(model)
    check_operators(model)
    check_expansions(model)
    _check_with_onnx(model)
    inferred = onnx.ModelProto()
    inferred.CopyFrom(model)
    infer_shapes(inferred)
    check_semantics(inferred)


def check_semantics(model: onnx.ModelProto) -> None:
    """The checks that need inferred shapes: axes, channels, quantization parameters, sizes of all results."""
    check_axes(model)
    check_layers(model)
    check_quantization(model)
    check_sizes(model)


def _check_with_onnx(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(_with_declared_shapes(model))
    except (onnx.checker.ValidationError, RuntimeError, ValueError, TypeError, UnicodeDecodeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelFileError(
            "The model does not follow the ONNX specification",
            where="graph",
            why=" ".join(lines)[:400],
            remedy="export the model again with a current exporter",
        ) from error


def _with_declared_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The checker insists on a shape for every input and output; exporters leave them out, and inference finds them."""
    values = [*model.graph.input, *model.graph.output]
    bare = [v for v in values if v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape")]
    if not bare:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return copy
