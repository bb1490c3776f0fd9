"""The time that the CPU part of a compiled model takes on this machine, without the simulated NPU part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from torq_byoc.compiled_model import CompiledModel
from torq_byoc.report.stopwatch import median_of


def host_microseconds(model: CompiledModel, inputs: Mapping[str, np.ndarray], budget: float = 0.5) -> float:
    """Median microseconds of TVM's CPU code around the NPU programs; 0 when there is none.

    Args:
        model: compiled model.
        inputs: one inference, in the order and types of the model's inputs.
        budget: seconds to spend.
    """
    if model.facts.direct:
        return 0.0
    import tvm_ffi

    from torq_byoc.host_module import build_host, deserialize
    from torq_byoc.npu_model import runtime

    simulated = _SimulatedTime(runtime.run)
    programs = [partition.loaded for partition in model.partitions]
    tvm_ffi.register_global_func(runtime.RUN_FUNCTION, simulated, override=True)
    try:
        executable = build_host(deserialize(model.host))
    finally:
        runtime.register()
    arguments = [np.ascontiguousarray(inputs[spec.name]) for spec in model.facts.inputs]

    def host_part() -> float:
        simulated.seconds = 0.0
        started = time.perf_counter()
        executable(arguments)
        return time.perf_counter() - started - simulated.seconds

    result = median_of(host_part, budget)
    del programs
    return result.us


class _SimulatedTime:
    """Passes calls on to the runtime and adds up their time."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> None:
        started = time.perf_counter()
        self._function(*arguments)
        self.seconds += time.perf_counter() - started
