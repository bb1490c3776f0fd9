"""The networks that the benchmarks run, as compilation requests, and their NPU parts as operator graphs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from tests.end_to_end.networks import FLOAT, QUANTIZED, Network
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.placement import place
from torq_byoc.host_module import npu_functions
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns import lower_partitions

SMALL = ("resnet8_int8", "dscnn_kws_int8", "ad_autoenc_int8", "vww_mbv1_025_int8", "mtcnn_rnet", "dtln_2")
"""Networks that compile in a second or two."""


@dataclass(frozen=True, eq=False)
class Job:
    """One network in one precision.

    Attributes:
        name: of the network.
        model: prepared.
        options: for the compilation; float models that become integers have calibration data.
        feeds: one inference.
    """

    name: str
    model: onnx.ModelProto
    options: Options
    feeds: Mapping[str, np.ndarray] = field(default_factory=dict)

    def on(self, config: NpuConfig) -> Job:
        """The same job for another machine."""
        return replace(self, options=replace(self.options, config=config))


def networks(names: Sequence[str]) -> list[Network]:
    """Networks of the zoo by name, or of files by path; the whole zoo, as far as its files are here, without names."""
    known = {network.name: network for network in (*QUANTIZED, *FLOAT)}
    if not names:
        return [network for network in known.values() if network.available]
    return [known[name] if name in known else Network(Path(name).stem, str(Path(name).resolve())) for name in names]


def job(network: Network, precision: str) -> Job:
    """A network for a precision; one that carries its scales keeps them.

    Raises:
        SystemExit: its file is not here.
    """
    if not network.available:
        raise SystemExit(f"{network.path} is not here; TORQ_TEST_MODELS names the folder of the model files")
    model = network.model()
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    calibration = None
    if not quantized and precision in ("int8", "int16"):
        calibration = network.calibration(model)
    options = Options(precision="auto" if quantized else precision, calibration=calibration)
    return Job(network.name, model, options, network.feeds(model))


def op_graphs(job: Job) -> dict[str, OpGraph]:
    """The operator graphs of a job's partitions, by symbol."""
    module = place(job.model, job.options, StageClock()).parted.module
    return lower_partitions(npu_functions(module), job.options.config)


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A parser with what all tables over networks take."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="names from the zoo, or ONNX files; all of the zoo without any")
    parser.add_argument("--precision", default="int8", choices=("int8", "int16", "bf16"), help="of float models")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser
