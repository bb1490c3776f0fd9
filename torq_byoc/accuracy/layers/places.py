"""Where the NPU's operator graphs have the results of ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.layers.codes import Codes
from torq_byoc.kernels.graph import OpGraph, TensorInfo
from torq_byoc.npu_model.dtypes import DType


@dataclass(frozen=True)
class Place:
    """A tensor of an operator graph: symbol of the partition, and name."""

    symbol: str
    tensor: str


class Places:
    """Finds results of ONNX nodes in operator graphs, by symbol."""

    def __init__(self, graphs: Mapping[str, OpGraph]) -> None:
        self._graphs = graphs
        self._made: dict[str, list[Place]] = {}
        for symbol, graph in graphs.items():
            for node in graph.nodes:
                self._made.setdefault(node.origin.rsplit("+", 1)[-1], []).append(Place(symbol, node.output))

    def find(self, node: str, shape: tuple[int, ...], codes: Codes | None) -> Place | None:
        """The last tensor that an ONNX node was the last one to contribute to and that has its result's form and codes.

        None where there is no such tensor: the node runs on the CPU, or its result lives inside another one's operator.
        Codes of a result in floats are made by an operator of their own.
        """
        quantizer = self._made.get(codes.node, []) if codes else []
        for place in reversed([*self._made.get(node, []), *quantizer]):
            info = self._graphs[place.symbol].tensors[place.tensor]
            if info.shape == shape and (_has_codes(info, codes) if codes else info.dtype is DType.BF16):
                return place
        return None

    def in_bf16(self, place: Place) -> bool:
        """Whether floats take part in a result, from the tensors of the model on that it is made of."""
        graph = self._graphs[place.symbol]
        makers = {node.output: node for node in graph.nodes}
        pending = [place.tensor]
        while pending:
            maker = makers.get(pending.pop())
            infos = [graph.tensors[name] for name in (maker.inputs if maker else ())]
            if any(info.dtype.is_float for info in infos):
                return True
            pending += [info.name for info in infos if info.scale is None]
        return False


def _has_codes(info: TensorInfo, codes: Codes) -> bool:
    if info.scale is None or info.dtype.numpy != codes.dtype or info.zero_point != codes.zero_point:
        return False
    return bool(np.isclose(info.scale, codes.scale, rtol=1e-6, atol=0.0))
