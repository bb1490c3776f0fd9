"""What the same model takes on this machine's CPU: TVM's untuned LLVM code, and onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx

from torq_byoc.frontend import to_relax
from torq_byoc.report.stopwatch import median_time


def example_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded random inputs of a prepared model: standard normal floats, small non-negative integers."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        values = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        feeds[value.name] = np.asarray(values).astype(dtype)
    return feeds


def cpu_baseline(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], budget: float = 1.0) -> dict[str, Any]:
    """Both baselines in one run, so that their ratio means something.

    Args:
        model: a prepared model; the model as given, not the quantized form of a float model.
        feeds: one inference.
        budget: seconds for each, on top of compilation.

    Returns:
        For each its figures, or ``unavailable`` with the reason.
    """
    return {
        name: _attempt(partial(measure, model, feeds, budget))
        for name, measure in (("tvm_llvm", tvm_time), ("onnxruntime", onnxruntime_time))
    }


def _attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A baseline that cannot run the model is a finding, and no reason to give up the others."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - other people's compilers fail in any way
        first = str(error).strip().splitlines()[:1]
        return {"unavailable": f"{type(error).__name__}: {''.join(first)}"}


def tvm_time(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], budget: float = 1.0) -> dict[str, Any]:
    """Median microseconds of TVM's default pipeline for the LLVM target, untuned."""
    import tvm

    from torq_byoc.host_module import build_host

    started = time.perf_counter()
    main = build_host(to_relax(model)).function
    compiled = time.perf_counter() - started
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(feeds[value.name])) for value in model.graph.input]
    timing = median_time(lambda: main(*arguments), budget)
    return {"us": timing.us, "runs": timing.runs, "compile_seconds": compiled}


def onnxruntime_time(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], budget: float = 1.0) -> dict[str, Any]:
    """Median microseconds of onnxruntime's CPU provider, fully optimised."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    timing = median_time(lambda: session.run(None, dict(feeds)), budget)
    return {"us": timing.us, "runs": timing.runs, "version": onnxruntime.__version__}
