"""A table of int8 accuracy: this quantizer beside onnxruntime's static quantization, on the same samples.

Usage::

    python -m benchmarks.accuracy.networks [NETWORK | MODEL.onnx ...] [--samples 8] [--fresh 4] [--json FILE]

Both are calibrated on the same seeded samples and judged on fresh ones against the float model, their QDQ models taken
in float64 (``quantize.judge``), so that no integer kernel plays a part.  SQNR is that of the worst part of the outputs.
onnxruntime's is the best of its calibrators, each with int8 activations and int8 weights a channel.  Agreement is how
often the decision that a user would take from the outputs is that of the float model: the largest class, or scores
above one half.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy.onnxruntime_int8 import best_score
from benchmarks.zoo import arguments, networks
from tests.end_to_end.networks import Network
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.numeric_model import numeric_model
from torq_byoc.compilation.options import Options
from torq_byoc.errors import TorqError
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.judge import Judge

FIRST_FRESH_SEED = 900
OURS = ("written_softmax", "early_bias")
"""Clean-up passes that are there for quantization: onnxruntime gets the model without them."""
Arrays = Mapping[str, np.ndarray]


def measure(network: Network, calibrating: int, fresh: int) -> dict[str, Any]:
    """Quantize a network twice and judge both."""
    model = network.model()
    calibration = network.calibration(model, calibrating)
    judge = Judge(model, [network.feeds(model, FIRST_FRESH_SEED + index) for index in range(fresh)])
    started = time.process_time()
    ours = numeric_model(model, Options(precision="int8", calibration=calibration), StageClock())
    seconds = time.process_time() - started
    evaluator = Float64Evaluator(ours.model)
    found = [evaluator.outputs(feed) for feed in judge.feeds]
    score = judge.score(found)
    facts: dict[str, Any] = {
        "network": network.name,
        "nodes": len(model.graph.node),
        "sqnr": score.sqnr,
        "cosine": score.cosine,
        "parts": {" / ".join(key): value for key, value in score.parts.items()},
        "agreement": float(np.mean([_agreement(a, b) for a, b in zip(judge.wanted, found, strict=True)])),
        "quantize_seconds": seconds,
        "notes": list(ours.notes),
    }
    return {**facts, **_theirs(network.model(OURS), list(samples(model, calibration)), judge)}


def _theirs(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], judge: Judge) -> dict[str, Any]:
    try:
        calibrator, score = best_score(model, feeds, judge)
    except Exception as error:  # noqa: BLE001 - its quantizer fails in many ways
        return {"onnxruntime": None, "onnxruntime_error": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
    return {"onnxruntime": calibrator, "onnxruntime_sqnr": score.sqnr, "onnxruntime_cosine": score.cosine}


def _agreement(wanted: Arrays, found: Arrays) -> float:
    """Share of equal decisions: the largest along the class axis of an output, or which side of one half.

    A map of one channel has no class axis.
    """
    shares = []
    for name, values in wanted.items():
        axis = 1 if values.ndim > 1 and values.shape[1] > 1 else -1
        is_map = values.ndim == 4 and axis == -1
        if values.shape[axis] > 1 and not is_map:
            shares.append(np.mean(values.argmax(axis) == found[name].argmax(axis)))
        else:
            shares.append(np.mean((values > 0.5) == (found[name] > 0.5)))
    return float(np.mean(shares))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "network", "nodes", "SQNR dB", "onnxruntime dB", "its calibrator", "cosine", "agreement", "quantize s"
    )
    for row in rows:
        other = row.get("onnxruntime_sqnr")
        table.add_row(
            row["network"],
            str(row["nodes"]),
            f"{row['sqnr']:.1f}",
            "-" if other is None else f"{other:.1f}",
            row["onnxruntime"] or row["onnxruntime_error"],
            f"{row['cosine']:.5f}",
            f"{row['agreement']:.1%}",
            f"{row['quantize_seconds']:.1f}",
        )
    return table


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--samples", type=int, default=8, help="calibration samples")
    parser.add_argument("--fresh", type=int, default=4, help="samples that judge")
    options = parser.parse_args()
    rows = []
    for network in networks(options.networks):
        if any(node.op_type == "QuantizeLinear" for node in network.model().graph.node):
            continue
        try:
            rows.append(measure(network, options.samples, options.fresh))
        except TorqError as error:
            print(f"{network.name}: {error.what}")
            continue
        Console(width=150).print(_table(rows[-1:]))
    Console(width=150).print(_table(rows))
    lost = [row["network"] for row in rows if row.get("onnxruntime_sqnr", -np.inf) > row["sqnr"]]
    print(f"below onnxruntime: {', '.join(lost) or 'none'}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
