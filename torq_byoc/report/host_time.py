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

    The programs run once; further runs put their recorded results in place, so that the simulator does not
    disturb what is timed.

    Args:
        model: compiled model.
        inputs: one inference, in the types of the model's inputs.
        budget: seconds to spend.
    """
    if model.facts.direct:
        return 0.0
    import tvm
    import tvm_ffi

    from torq_byoc.host_module import build_host, deserialize
    from torq_byoc.npu_model import runtime

    programs = [partition.loaded for partition in model.partitions]
    replay = _Replay(runtime.run)
    tvm_ffi.register_global_func(runtime.RUN_FUNCTION, replay, override=True)
    try:
        main = build_host(deserialize(model.host)).function
    finally:
        runtime.register()
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(inputs[spec.name])) for spec in model.facts.inputs]
    main(*arguments)
    del programs

    def host_part() -> float:
        replay.rewind()
        started = time.perf_counter()
        main(*arguments)
        return time.perf_counter() - started - replay.seconds

    return median_of(host_part, budget).us


class _Replay:
    """Stands for the runtime: the first pass runs and records, later ones copy what was recorded."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._results: list[list[np.ndarray]] = []
        self._position: int | None = None
        self.seconds = 0.0

    def rewind(self) -> None:
        """The next call is the first of a run."""
        self._position = 0
        self.seconds = 0.0

    def __call__(self, blob: Any, inputs: int, *tensors: Any) -> None:
        started = time.perf_counter()
        outputs = tensors[int(inputs) :]
        if self._position is None:
            self._function(blob, inputs, *tensors)
            self._results.append([np.from_dlpack(tensor).copy() for tensor in outputs])
            return
        for tensor, value in zip(outputs, self._results[self._position], strict=True):
            np.copyto(np.from_dlpack(tensor), value)
        self._position += 1
        self.seconds += time.perf_counter() - started
