"""What rounding weights adds to the mean of a layer's result, to be taken from its bias.

    mean(W x) - mean(w x) = sum over channels and taps of (W - w) mean(x)

Weights are rounded once, so their errors do not average out over positions and samples: where inputs are positive
throughout (after ReLU) all results of a channel are off by about the same amount.  The means are those of the float
model, a tap's over the positions that it reads; errors of the layers before are theirs to correct.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute, constant_tensors

_LAYERS = frozenset({"Conv", "Gemm", "MatMul"})


class InputMeans:
    """Means of what the weights of every layer are multiplied with, sample by sample.

    Args:
        model: the prepared float model that is run.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        constants = constant_tensors(model.graph)
        found = {
            node.name: (node, tuple(constants[node.input[1]].dims))
            for node in model.graph.node
            if node.op_type in _LAYERS
            and node.input[1] in constants
            and node.input[0] not in constants
            and not attribute(node, "transA", 0)
        }
        self._layers = {
            name: (node, dims) for name, (node, dims) in found.items() if node.op_type == "Conv" or len(dims) == 2
        }
        self._halves: dict[str, list[np.ndarray]] = {}
        self._samples = 0

    def add(self, values: Mapping[str, np.ndarray]) -> None:
        """Take in the tensors of one sample."""
        half = self._samples % 2
        self._samples += 1
        for name, (node, dims) in self._layers.items():
            means = _tap_means(node, values[node.input[0]], dims)
            halves = self._halves.setdefault(name, [np.zeros_like(means), np.zeros_like(means)])
            halves[half] += means

    def shift(self, name: str, exact: np.ndarray, rounded: np.ndarray) -> np.ndarray | None:
        """What rounding adds to the mean of every output of a layer.

        Args:
            name: of the node.
            exact: its float weights.
            rounded: what they become, in the same form.

        Returns:
            float64 [outputs]; None where half of the samples do not say the same as the other half: taking out what
            one half shows must leave less in the other.
        """
        if self._samples < 2 or name not in self._halves:
            return None
        node, _ = self._layers[name]
        difference = rounded.astype(np.float64) - exact.astype(np.float64)
        counts = (self._samples - self._samples // 2, self._samples // 2)
        found = [_sums(node, difference, half / n) for half, n in zip(self._halves[name], counts, strict=True)]
        if np.square(found[1] - found[0]).sum() >= min(np.square(found[0]).sum(), np.square(found[1]).sum()):
            return None
        return (found[0] * counts[0] + found[1] * counts[1]) / self._samples


def _tap_means(node: onnx.NodeProto, values: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """float64 [channels, taps]: the mean over all positions of the result of what each tap reads, zeros outside."""
    wide = values.astype(np.float64)
    if node.op_type != "Conv":
        return wide.reshape(-1, wide.shape[-1]).mean(axis=0)[:, None]
    rank = len(dims) - 2
    strides, dilations = attribute(node, "strides", [1] * rank), attribute(node, "dilations", [1] * rank)
    pads = attribute(node, "pads", [0] * 2 * rank)
    means = wide.mean(axis=0)
    for axis in range(rank):
        extent = wide.shape[2 + axis]
        reach = dilations[axis] * (dims[2 + axis] - 1) + 1
        results = (extent + pads[axis] + pads[rank + axis] - reach) // strides[axis] + 1
        shares = np.zeros((dims[2 + axis], extent))
        for tap in range(dims[2 + axis]):
            read = np.arange(results) * strides[axis] + dilations[axis] * tap - pads[axis]
            shares[tap, read[(read >= 0) & (read < extent)]] = 1.0 / results
        means = np.moveaxis(np.tensordot(shares, means, axes=(1, 1 + axis)), 0, 1 + axis)
    return means.reshape(len(means), -1)


def _sums(node: onnx.NodeProto, weights: np.ndarray, means: np.ndarray) -> np.ndarray:
    """float64 [outputs]: a layer's weights times means, without its bias."""
    if node.op_type != "Conv":  # [inputs, outputs]
        weights = weights.T
    groups = int(attribute(node, "group", 1)) if node.op_type == "Conv" else 1
    grouped = weights.reshape(groups, -1, weights.shape[1], means.shape[1])
    return np.einsum("goct,gct->go", grouped, means.reshape(groups, -1, means.shape[1])).reshape(-1)
