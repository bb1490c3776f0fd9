"""What can be done about a cause of error, what it is expected to gain, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from msgspec.structs import replace

from torq_byoc.quantize import parameters, rules
from torq_byoc.quantize.choose_ranges import ROOMY
from torq_byoc.quantize.planning.noise import NoiseMeter
from torq_byoc.quantize.planning.price import Cost
from torq_byoc.quantize.planning.sources import Source
from torq_byoc.quantize.precision_plan import PrecisionPlan, TensorPrecision
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.planned_ranges import Ranges
from torq_byoc.quantize.qdq.quantizable import Quantizable
from torq_byoc.quantize.qdq.scales import quantization_of_tensor

BF16_NOISE = 2.0**-15 / 12
"""Energy of rounding to 8 significant bits over the energy of the values: a step of 2**-7 of a value's binade."""
LEAST_COST = 1.0
"""Cycles that anything but another range counts as, however the model prices it."""


@dataclass(frozen=True)
class Move:
    """One way to lessen one cause of error.

    Attributes:
        source: position of the cause.
        left: share of the cause's noise that is left.
        cost: cycles, bytes among them.
        tensors: precision of tensors.
        nodes: operators that stay float.
        added: noise that comes in addition, as shares of the noise of other causes, by their positions.
    """

    source: int
    left: float
    cost: float
    tensors: Mapping[str, TensorPrecision]
    nodes: tuple[str, ...] = ()
    added: tuple[tuple[int, float], ...] = ()

    def applied_to(self, plan: PrecisionPlan) -> PrecisionPlan:
        """The plan with this in it."""
        return replace(
            plan,
            tensors={**plan.tensors, **self.tensors},
            nodes={**plan.nodes, **dict.fromkeys(self.nodes, "bf16")},
        )


@dataclass(frozen=True)
class Prices:
    """Costs of every operator by name: with all tensors of 8 bits, all of 16, and all operators with weights in bf16.

    Attributes:
        int8, int16, bf16: the three.
        cycles_a_byte: what a byte counts as.
    """

    int8: Mapping[str, Cost]
    int16: Mapping[str, Cost]
    bf16: Mapping[str, Cost]
    cycles_a_byte: float

    def of_int16(self, readers: Sequence[str]) -> float:
        """Of 16 bits in a tensor with these readers."""
        return self._weighed(sum((self._of(self.int16, name) - self._of(self.int8, name) for name in readers), Cost()))

    def of_bf16(self, node: str, borders: Sequence[str]) -> float:
        """Of an operator in bf16 with these conversions around it."""
        extra = self._of(self.bf16, node) - self._of(self.int8, node)
        return self._weighed(sum((self._of(self.bf16, name) for name in borders), extra))

    def _of(self, costs: Mapping[str, Cost], name: str) -> Cost:
        return costs.get(name, Cost())

    def _weighed(self, cost: Cost) -> float:
        return max(LEAST_COST, cost.cycles + cost.bytes * self.cycles_a_byte)


def ranges_of(form: Quantizable, sources: Sequence[Source], meter: NoiseMeter, ranges: Ranges) -> Iterator[Move]:
    """Ranges by other methods that round the tensors with less error; they cost nothing."""
    graph = form.graph()
    for position, source in enumerate(sources):
        if not source.tensors:
            continue
        present = meter.local_noise(source, meter.parameters)
        for method in sorted(ranges):
            found = quantization_of_tensor(graph, source.tensors[-1], ranges[method][source.tensors[-1]])
            noise = meter.local_noise(source, dict.fromkeys(source.tensors, found))
            if noise < present:
                entry = TensorPrecision(method=method)
                yield Move(position, noise / present, 0.0, dict.fromkeys(source.tensors, entry))


def wider_tensors(
    form: Quantizable, sources: Sequence[Source], meter: NoiseMeter, ranges: Ranges, prices: Prices
) -> Iterator[Move]:
    """16 bits for tensors; over more than the whole of their values, for steps are fine enough."""
    readers: dict[str, list[str]] = {}
    for node in form.model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.name)
    for position, source in enumerate(sources):
        present = meter.local_noise(source, meter.parameters) if source.tensors else 0.0
        if present == 0.0:
            continue
        found = parameters.activation(ranges[ROOMY][source.tensors[-1]], "int16")
        noise = meter.local_noise(source, dict.fromkeys(source.tensors, found))
        asking = [reader for name in source.tensors for reader in readers.get(name, ())]
        entry = TensorPrecision(dtype="int16", method=ROOMY)
        yield Move(position, noise / present, prices.of_int16(asking), dict.fromkeys(source.tensors, entry))


def float_operators(
    form: Quantizable, quantized: onnx.ModelProto, sources: Sequence[Source], meter: NoiseMeter, prices: Prices
) -> Iterator[Move]:
    """bf16 for operators with weights, with the clamp or the bias behind them.

    Args:
        form: the float model.
        quantized: the same with all operators that have weights in bf16.
        sources: causes of error.
        meter: measures.
        prices: costs.
    """
    graph = form.graph()
    nodes = {node.name: node for node in form.model.graph.node}
    borders = _borders(quantized)
    homes = {name: position for position, source in enumerate(sources) for name in source.tensors}
    rounded = [_bf16_share(source, meter) for source in sources]
    for position, source in enumerate(sources):
        if source.node not in meter.weights:
            continue
        taken = taken_along(graph, nodes[source.node])
        weights = meter.weights[source.node][1].astype(np.float64)
        stored = onnx.numpy_helper.to_array(graph.constants[nodes[source.node].input[1]]).astype(np.float64)
        noise, energy = float(np.square(weights - stored).sum()), float(np.square(stored).sum())
        left = min(1.0, BF16_NOISE * energy / noise) if noise else 1.0
        cost = prices.of_bf16(source.node, [name for node in taken for name in borders.get(node, ())])
        ends = (graph.leader(nodes[source.node].input[0]), nodes[taken[-1]].output[0])
        touched = sorted({homes[name] for name in ends if name in homes})
        if left < 1.0:
            yield Move(position, left, cost, {}, taken, tuple((home, rounded[home]) for home in touched))


def _bf16_share(source: Source, meter: NoiseMeter) -> float:
    """Noise of rounding tensors to bf16 over that of their quantization."""
    present = meter.local_noise(source, meter.parameters) if source.tensors else 0.0
    energy = sum(float(np.square(run.tensors[n], dtype=np.float64).sum()) for run in meter.runs for n in source.tensors)
    return BF16_NOISE * energy / present if present else 0.0


def taken_along(graph: IntegerGraph, node: onnx.NodeProto) -> tuple[str, ...]:
    """The operator and those behind it that share its requantization."""
    found = [node.name]
    while (behind := graph.absorbed(node.output[0])) is not None:
        node = behind
        found.append(node.name)
    return tuple(found)


def all_weighted(form: Quantizable) -> PrecisionPlan:
    """The plan with every operator that has weights in bf16."""
    graph = form.graph()
    taken = [
        name
        for node in graph.integer_nodes()
        if node.op_type in rules.WEIGHTED and node.input[1] in graph.constants
        for name in taken_along(graph, node)
    ]
    return PrecisionPlan(nodes=dict.fromkeys(taken, "bf16"))


def _borders(quantized: onnx.ModelProto) -> dict[str, list[str]]:
    """Quantize and dequantize nodes by the float operator that they belong to."""
    makers = {name: node for node in quantized.graph.node for name in node.output}
    found: dict[str, list[str]] = {}
    for node in quantized.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in makers:
            found.setdefault(makers[node.input[0]].name, []).append(node.name)
        for name in node.input:
            if name in makers and makers[name].op_type == "DequantizeLinear":
                found.setdefault(node.name, []).append(makers[name].name)
    return found
