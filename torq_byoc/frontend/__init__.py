"""ONNX in, clean Relax out: safe loading, validation, simplification, import.

The order is ``load_model`` -> ``prepare`` (which validates) -> ``to_relax``.  Only ``to_relax`` needs TVM, and
imports it when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torq_byoc.frontend.loader import load_model
from torq_byoc.frontend.preparation import Preparation, prepare, prepare_with_notes
from torq_byoc.frontend.validator import validate

if TYPE_CHECKING:
    import onnx
    from tvm import IRModule

__all__ = ["Preparation", "load_model", "onnx_node_name", "prepare", "prepare_with_notes", "to_relax", "validate"]


def to_relax(model: onnx.ModelProto) -> IRModule:
    """A prepared model as a Relax module; ``frontend/importer.py`` lists what each operator becomes."""
    from torq_byoc.frontend.importer import to_relax as convert

    return convert(model)


def onnx_node_name(call: Any) -> str | None:
    """The ONNX node that a ``relax.Call`` of an imported module implements, None for calls made later."""
    span = getattr(call, "span", None)
    return None if span is None else str(span.source_name.name)
