"""A float model run again with some of its tensors changed: only what depends on them is computed anew."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from torq_byoc.npu_model.blas import single_threaded
from torq_byoc.quantize.evaluation.evaluator import Arrays, Evaluator

Change = Callable[[np.ndarray], np.ndarray]


class Rerun:
    """One sample's run of a model, to be varied.

    Args:
        model: a prepared float model.
        feed: the sample.
    """

    def __init__(self, model: onnx.ModelProto, feed: Mapping[str, np.ndarray]) -> None:
        self._evaluator = Evaluator(model)
        self._names = [value.name for value in model.graph.output]
        self._feed = dict(feed)
        self.tensors = self._evaluator.tensors(feed)

    def outputs(self, changes: Mapping[str, Change], constants: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by name.

        Args:
            changes: what is done to a tensor as soon as it is there, by name.
            constants: values in place of the model's own, by name.
        """
        found: Arrays = dict(constants)
        found.update({name: changes[name](value) for name, value in self._feed.items() if name in changes})
        with warnings.catch_warnings(), np.errstate(all="ignore"), single_threaded():
            warnings.simplefilter("ignore")
            for node in self._evaluator.nodes:
                stale = any(name in found for name in node.input)
                if not stale and not any(name in changes for name in node.output):
                    continue
                results = self._again(node, found) if stale else [self.tensors[name] for name in node.output]
                for name, value in zip(node.output, results, strict=False):
                    found[name] = changes[name](np.asarray(value)) if name in changes else np.asarray(value)
        return {name: found.get(name, self.tensors[name]) for name in self._names}

    def _again(self, node: OpRun, found: Arrays) -> Sequence[np.ndarray]:
        operands = [found.get(name, self.tensors.get(name)) for name in node.input]
        context = {"context": {**self.tensors, **found}} if node.need_context() else {}
        return node.run(*operands, **context)
