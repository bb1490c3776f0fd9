"""The machine: description, instruction set, programs, simulator, timing, verifier, runtime.

Importing this package is enough to run exported executables: the runtime is registered with TVM as soon
as TVM is imported, before or after.
"""

from __future__ import annotations

from types import ModuleType

import wrapt


def _register_runtime(tvm: ModuleType) -> None:
    from torq_byoc.npu_model.runtime import register

    register(tvm)


wrapt.when_imported("tvm")(_register_runtime)
