"""What the layers of a model should be: the values that the float model has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx

from torq_byoc.accuracy.layers.counterparts import Counterparts
from torq_byoc.accuracy.layers.layers import Layer
from torq_byoc.accuracy.references.float_reference import float_reference
from torq_byoc.accuracy.stages import Stages
from torq_byoc.quantize.evaluation.evaluator import Arrays


class Wanted(Protocol):
    """Who says what layers should be: the float model, under names of its own."""

    @property
    def names(self) -> Mapping[str, str]:
        """By layer, for those that it has."""

    def values(self, feeds: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> Arrays:
        """Of one sample by layer; ``own`` are the quantized model's."""


class _SameNames:
    """The float model that was quantized here: every layer has its name."""

    def __init__(self, model: onnx.ModelProto, layers: Sequence[Layer]) -> None:
        self._reference = float_reference(model)
        self.names = {layer.tensor: layer.tensor for layer in layers}

    def values(self, feeds: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> Arrays:
        """Every tensor of one run by name."""
        del own
        return {**feeds, **self._reference.tensors(feeds)}


def wanted_of(stages: Stages, layers: Sequence[Layer]) -> Wanted | None:
    """Who says what the layers of a model should be; None where nobody does."""
    if stages.float_model:
        return Counterparts(stages.float_model, stages.precise, layers)
    return None if stages.carries_scales else _SameNames(stages.prepared, layers)
