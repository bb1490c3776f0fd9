"""A float model run node by node in numpy, every tensor visible.

The evaluator of the onnx package, with its slow operators and those that it has wrong replaced.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from torq_byoc.npu_model.blas import single_threaded
from torq_byoc.quantize.evaluation.fast_conv import Conv
from torq_byoc.quantize.evaluation.fast_pools import AveragePool, GlobalMaxPool, MaxPool
from torq_byoc.quantize.evaluation.mean_of_inputs import Mean
from torq_byoc.quantize.evaluation.response_normalization import LRN

Arrays = dict[str, np.ndarray]
_OPERATORS: tuple[type[OpRun], ...] = (Conv, MaxPool, AveragePool, GlobalMaxPool, LRN, Mean)


class Evaluator:
    """Runs one model many times.

    Args:
        model: a valid model with static shapes.
        operators: further implementations that take the place of the package's own.
    """

    def __init__(self, model: onnx.ModelProto, operators: Sequence[type[OpRun]] = ()) -> None:
        self._run = ReferenceEvaluator(model, new_ops=[*_OPERATORS, *operators])

    @property
    def nodes(self) -> Sequence[OpRun]:
        """The operators in the order in which they run."""
        return self._run.rt_nodes_

    def tensors(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Every tensor of one run by name: inputs, results between, outputs."""
        with warnings.catch_warnings(), np.errstate(all="ignore"), single_threaded():
            warnings.simplefilter("ignore")
            # The library declares a list, which is what it returns without ``intermediate``.
            found = cast(Arrays, self._run.run(None, dict(feeds), intermediate=True))
        return {name: np.asarray(value) for name, value in found.items() if name}

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name."""
        with warnings.catch_warnings(), np.errstate(all="ignore"), single_threaded():
            warnings.simplefilter("ignore")
            found = cast(list[np.ndarray], self._run.run(None, dict(feeds)))
        return dict(zip(self._run.output_names, map(np.asarray, found), strict=True))
