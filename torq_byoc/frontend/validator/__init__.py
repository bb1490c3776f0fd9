"""Is this model what ONNX says it is?  Everything is checked before anything of the model's size is allocated.

onnx's own checker runs last among the formal checks: ours come first because it trusts lengths and counts.
"""

from __future__ import annotations

import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import all_nodes, default_opset
from torq_byoc.frontend.shapes import infer_shapes
from torq_byoc.frontend.validator.attributes import check_attributes
from torq_byoc.frontend.validator.axes import check_axes
from torq_byoc.frontend.validator.division import check_divisions
from torq_byoc.frontend.validator.expansion import check_expansions, check_sizes
from torq_byoc.frontend.validator.layers import check_layers
from torq_byoc.frontend.validator.operand_types import check_operand_types
from torq_byoc.frontend.validator.operators import check_operators
from torq_byoc.frontend.validator.quantization import check_quantization
from torq_byoc.frontend.validator.size import check_size
from torq_byoc.frontend.validator.structure import check_structure
from torq_byoc.frontend.validator.tensors import check_tensors
from torq_byoc.frontend.validator.text import check_text
from torq_byoc.frontend.validator.types import check_interface

__all__ = ["check_semantics", "validate"]


def validate(model: onnx.ModelProto) -> None:
    """Check a loaded model; it is not changed.

    Raises:
        ModelFileError: damaged or contradictory structure, unknown element types or operator sets, parameters that
            are no finite numbers.
        ShapeError: impossible dimensions, axes that do not exist, tensors beyond any memory.
        QuantizationError: scales or zero points that the arithmetic cannot express.
        UnsupportedOpError: operators that do not exist, all of them at once.
    """
    check_size(model)
    check_text(model)
    check_tensors(model)
    check_structure(model)
    check_operators(model)
    check_attributes(model)
    check_interface(model)
    check_expansions(model)
    _check_with_onnx(model)
    inferred = onnx.ModelProto()
    inferred.CopyFrom(model)
    infer_shapes(inferred)
    check_semantics(inferred)
    check_operand_types(inferred)


_DEPRECATED = "GroupNormalization"


def check_semantics(model: onnx.ModelProto) -> None:
    """The checks that need inferred shapes: axes, channels, quantization parameters, sizes of all results."""
    check_axes(model)
    check_layers(model)
    check_divisions(model)
    check_quantization(model)
    check_sizes(model)


def _check_with_onnx(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(_checkable(model))
    except (onnx.checker.ValidationError, RuntimeError, ValueError, TypeError, UnicodeDecodeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelFileError(
            "The model does not follow the ONNX specification",
            where="graph",
            why=" ".join(lines)[:400],
            remedy="export the model again with a current exporter",
        ) from error


def _checkable(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model as the checker takes it; the same object where nothing stands in its way.

    It insists on a shape for every input and output; exporters leave them out, and inference finds them.  It
    refuses the first GroupNormalization as deprecated; exporters still write it, and ``prepare`` replaces it.
    """
    values = [*model.graph.input, *model.graph.output]
    bare = any(v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape") for v in values)
    deprecated = default_opset(model) < 21 and any(n.op_type == _DEPRECATED for n in all_nodes(model.graph))
    if not (bare or deprecated):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for node in all_nodes(copy.graph):
        if deprecated and node.op_type == _DEPRECATED:
            node.op_type = "InstanceNormalization"  # which has the same operands
            del node.attribute[:]
    return copy
