"""Take one network through the compiler in one precision, check everything that must hold, and report the figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import onnx

from tests.end_to_end.harness import Outcome, compile_and_compare
from tests.end_to_end.layers import end_to_end, float_layers, quantized_layers
from tests.end_to_end.networks import Feeds, Network
from tests.relay_patterns.infra import onnxruntime_outputs
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.evaluation.distance import cosine
from torq_byoc.report.summary import summarize

MAX_LAYER_LSB = 1
MAX_LAYER_MEAN_LSB = 0.002
MAX_MEAN_LSB = 0.25
"""End to end, from float64, averaged over all quantized tensors and ``INPUTS`` inputs: one moved code in an early layer
moves half the codes of a deep network's later ones, so nearly all codes of nearly all layers have to be right."""
INPUTS = 6
"""Inputs of an end-to-end figure: one moved code more or less decides the figure of a single run."""
MIN_LAYER_COSINE = 0.999
MIN_NETWORK_COSINE = 0.995
MIN_MAC_FRACTION = 0.99


@dataclass(frozen=True)
class Row:
    """The figures of one network in one precision."""

    network: str
    precision: str
    cycles: int
    efficiency: float
    compile_seconds: float
    run_seconds: float
    mac_fraction: float
    cpu_ops: int
    worst_layer: float
    """Largest LSB distance of a layer, or its lowest cosine in bf16."""
    worst_layer_name: str
    layer_mean: float
    """Mean LSB distance of layers on their own, averaged over the layers; in bf16 the mean of the cosines."""
    whole: float
    """Mean LSB distance of all quantized tensors end to end, or the lowest cosine of an output in bf16."""
    truth_layer: int = 0
    """Largest LSB distance between onnxruntime's float32 and float64 in a layer on its own."""
    truth_whole: float = 0.0
    """Mean LSB distance between the two end to end."""

    def __str__(self) -> str:
        return "  ".join(f"{name}={value}" for name, value in asdict(self).items())


def measure_quantized(network: Network, config: NpuConfig) -> Row:
    """A model with scales, or a float one quantized by us; exact against the integer reference."""
    model = network.model()
    feeds = network.feeds(model)
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        model = quantize_model(model, network.calibration(model))
    outcome = compile_and_compare(model, feeds, config)
    distances = quantized_layers(model, feeds, config)
    name = max(distances.worst, key=distances.worst.__getitem__)
    whole = [end_to_end(model, network.feeds(model, seed), config) for seed in range(INPUTS)]
    layers = (distances.worst[name], name, float(np.mean(list(distances.mean.values()))))
    row = _row(network, "int8", outcome, layers, float(np.mean([run.ours for run in whole])))
    theirs = float(np.mean([run.onnxruntime for run in whole]))
    return replace(row, truth_layer=distances.truth, truth_whole=round(theirs, 5))


def measure_bf16(network: Network, config: NpuConfig) -> Row:
    """A float model in bf16, within an ULP of the reference and close to float onnxruntime."""
    model = network.model()
    feeds = network.feeds(model)
    outcome = compile_and_compare(model, feeds, config, precision="bf16")
    cosines = float_layers(model, outcome.reference, feeds)
    name = min(cosines, key=cosines.__getitem__)
    layers = (cosines[name], name, float(np.mean(list(cosines.values()))))
    return _row(network, "bf16", outcome, layers, network_cosine(model, feeds, outcome))


def network_cosine(model: onnx.ModelProto, feeds: Feeds, outcome: Outcome) -> float:
    """The lowest cosine of a float output against onnxruntime."""
    expected = onnxruntime_outputs(model, feeds)
    pairs = zip(model.graph.output, expected, strict=True)
    return min(cosine(outcome.outputs[v.name], theirs) for v, theirs in pairs if theirs.dtype == np.float32)


def _row(network: Network, precision: str, outcome: Outcome, layers: tuple[float, str, float], whole: float) -> Row:
    worst, name, mean = layers
    summary = summarize(outcome.compiled)
    return Row(
        network.name,
        precision,
        int(summary["cycles"]["total"]),
        round(float(summary["efficiency"]), 3),
        round(outcome.compile_seconds, 1),
        round(outcome.run_seconds, 2),
        round(float(summary["npu_mac_fraction"]), 4),
        len(outcome.compiled.facts.cpu_ops),
        round(float(worst), 5),
        name,
        round(mean, 7),
        round(whole, 5),
    )
