"""An Apache TVM (Relax) backend for Torq-class NPUs, with a bit-exact, cycle-counting simulator.

Importing the package is light: TVM and ONNX are imported by the functions that need them.  As soon as TVM
is imported, in whichever order, the target ``torq``, the Relax pipeline ``torq``, the pattern tables and
the runtime are registered with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torq_byoc import npu_model as npu_model
from torq_byoc.errors import (
    AccuracyError,
    CalibrationError,
    CommandLineError,
    EnvironmentProblem,
    HardwareConfigError,
    InternalError,
    KernelError,
    LramOverflowError,
    ModelFileError,
    ProgramFormatError,
    QuantizationError,
    ScheduleError,
    ShapeError,
    TorqError,
    UnsupportedOpError,
    VerificationError,
)
from torq_byoc.target import install_hook

if TYPE_CHECKING:
    from torq_byoc.accuracy.api import check_model
    from torq_byoc.compiled_model import CompiledModel, load
    from torq_byoc.compiler import compile, partition_for_torq
    from torq_byoc.npu_model.config import NpuConfig
    from torq_byoc.quantize.planning.target import PrecisionTarget
    from torq_byoc.quantize.precision_plan import PrecisionPlan

__version__ = "0.1.0"

__all__ = [
    "AccuracyError",
    "CalibrationError",
    "CommandLineError",
    "CompiledModel",
    "EnvironmentProblem",
    "HardwareConfigError",
    "InternalError",
    "KernelError",
    "LramOverflowError",
    "ModelFileError",
    "NpuConfig",
    "PrecisionPlan",
    "PrecisionTarget",
    "ProgramFormatError",
    "QuantizationError",
    "ScheduleError",
    "ShapeError",
    "TorqError",
    "UnsupportedOpError",
    "VerificationError",
    "check_model",
    "compile",
    "load",
    "partition_for_torq",
]

_LAZY = {
    "NpuConfig": "torq_byoc.npu_model.config",
    "PrecisionPlan": "torq_byoc.quantize.precision_plan",
    "PrecisionTarget": "torq_byoc.quantize.planning.target",
    "CompiledModel": "torq_byoc.compiled_model",
    "load": "torq_byoc.compiled_model",
    "check_model": "torq_byoc.accuracy.api",
    "compile": "torq_byoc.compiler",
    "partition_for_torq": "torq_byoc.compiler",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


install_hook()
