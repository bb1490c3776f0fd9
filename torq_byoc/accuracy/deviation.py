"""What the accuracy check says of one layer at one stage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Between which two forms of a model an error arises."""

    GIVEN = "as given"
    """Before any stage: the model or the data themselves."""
    IMPORT = "import"
    """The model as given, and prepared: folding, rewriting, renaming."""
    QUANTIZATION = "quantization"
    """The prepared float model, and QDQ semantics in float64."""
    BF16 = "rounding to bf16"
    """The float model, and the same layer by layer on bf16 operands."""
    ROUNDING = "integer rounding"
    """QDQ semantics in float64, and the machine's integers on whole tensors."""
    TILING = "tiling"
    """Whole tensors, and tiles: where jobs work.  Regions, borders, buffers, loads and stores, partial sums."""
    CODE_GENERATION = "code generation"
    """What a slice task was asked for, and what it computes: operations, rescaling, packed weights and scales."""
    HOST = "host fallback"
    """Operators on the CPU target, and types at the border to it."""


@dataclass(frozen=True)
class Deviation:
    """An error of one layer.

    Attributes:
        stage: where it arises.
        node: name of the node in the prepared model.
        tensor: the result that is wrong.
        local: it arises in this layer; otherwise the layer inherits it from those before.
        cause: the kind of defect in a few words, such as "zero point dropped"; empty when unknown.
        detail: the facts in a sentence.
    """

    stage: Stage
    node: str
    tensor: str
    local: bool
    cause: str
    detail: str
