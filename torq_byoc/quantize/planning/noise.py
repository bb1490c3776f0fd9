"""How much of the output's error each cause brings: measured with the cause alone, in a float model otherwise exact.

Errors of rounding are small and unrelated, so their squares add up.  Causes are measured in groups first, and the
groups that matter are halved until the work allowed is done: a network has few causes that matter and many that do not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.quantize.evaluation.rerun import Rerun
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.planning.sources import Source

FEWEST_RUNS = 24
RUNS_PER_SOURCE = 2
"""Measurements that tell every cause from every other."""
WORK = 1.0e11
"""Multiply-accumulates to spend on measurements; networks beyond get groups that are not told apart."""


def rounding(quantization: TensorQuantization) -> Callable[[np.ndarray], np.ndarray]:
    """What quantizing and dequantizing makes of values."""
    limits = np.iinfo(quantization.dtype)
    scale, zero_point = float(quantization.scale), quantization.zero_point

    def change(values: np.ndarray) -> np.ndarray:
        codes = np.clip(np.rint(values / scale) + zero_point, limits.min, limits.max)
        return ((codes - zero_point) * scale).astype(np.float32)

    return change


@dataclass(frozen=True, eq=False)
class NoiseMeter:
    """Measures noise at the outputs.

    Attributes:
        model: the prepared float model.
        judge: knows the samples, the outputs wanted and their parts.
        parameters: quantization of every tensor.
        weights: stored weights by operator: position of the operand and values.
        runs: the samples' float runs.
    """

    model: onnx.ModelProto
    judge: Judge
    parameters: Mapping[str, TensorQuantization]
    weights: Mapping[str, tuple[int, np.ndarray]]
    runs: Sequence[Rerun]

    def noise(self, sources: Sequence[Source]) -> np.ndarray:
        """Error over signal, as energies, of every output part."""
        nodes = {node.name: node for node in self.model.graph.node}
        constants = {
            nodes[source.node].input[self.weights[source.node][0]]: self.weights[source.node][1]
            for source in sources
            if source.node in self.weights
        }
        changes = {name: rounding(self.parameters[name]) for source in sources for name in source.tensors}
        found = [run.outputs(changes, constants) for run in self.runs]
        return 10.0 ** (-np.array(list(self.judge.score(found).parts.values())) / 10)

    def local_noise(self, source: Source, quantization: Mapping[str, TensorQuantization]) -> float:
        """Mean square error of the tensors of one cause under some quantization."""
        errors = [
            np.square(rounding(quantization[name])(run.tensors[name]) - run.tensors[name].astype(np.float64)).sum()
            for run in self.runs
            for name in source.tensors
        ]
        return float(np.sum(errors))


def measured(meter: NoiseMeter, sources: Sequence[Source], macs: int) -> list[np.ndarray]:
    """Noise of every cause, one array of output parts each.

    Args:
        meter: measures.
        sources: in graph order.
        macs: multiply-accumulates of one run of one sample.
    """
    runs = int(min(max(FEWEST_RUNS, WORK / max(1, macs * len(meter.runs))), RUNS_PER_SOURCE * len(sources)))
    groups: list[tuple[float, int, int, np.ndarray]] = []

    def add(first: int, last: int) -> None:
        found = meter.noise(sources[first:last])
        # Singles come last: they cannot be told apart any further.
        priority = -float(found.max()) if last - first > 1 else 0.0
        heapq.heappush(groups, (priority, first, last, found))

    add(0, len(sources))
    for _ in range((runs - 1) // 2):
        _, first, last, found = heapq.heappop(groups)
        if last - first < 2:
            heapq.heappush(groups, (0.0, first, last, found))
            break
        middle = (first + last) // 2
        add(first, middle)
        add(middle, last)
    result: list[np.ndarray] = [np.zeros(0)] * len(sources)
    for _, first, last, found in groups:
        for index in range(first, last):
            result[index] = found / (last - first)
    return result
