"""What torq_byoc registers with TVM: the target tags, the Relax pipeline, the pattern table, the codegen hook.

TVM is never imported from here; registration happens as soon as somebody imports it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import wrapt

TARGET = "torq"
CODEGEN_HOOK = "relax.ext.torq"


def install_hook() -> None:
    """Register with TVM now if it is imported, else when it is."""
    wrapt.when_imported("tvm")(register)


def register(tvm: ModuleType) -> None:
    """Make ``Target("torq")``, ``relax_pipeline="torq"`` and the codegen hook known to TVM."""
    _register_tags(tvm)
    _register_pipeline(tvm)
    _register_codegen(tvm)


def resolved(target: Any) -> Any:
    """A TVM target from a target or its name.

    Raises:
        HardwareConfigError: the name is ``torq/`` and no preset; TVM itself would only say that it knows no such
            kind of target.
    """
    import tvm

    from torq_byoc.npu_model.presets import preset

    if not isinstance(target, str):
        return target
    if target.startswith(f"{TARGET}/"):
        preset(target.removeprefix(f"{TARGET}/"))
    return tvm.target.Target(target)


def preset_of(target: Any) -> str:
    """The hardware preset that a TVM target names: its model, ``sl2610`` when it has none."""
    model = str(target.attrs.get("model", "")) if hasattr(target, "attrs") else ""
    return model.removeprefix("torq/") if model.startswith("torq/") else "sl2610"


def _register_tags(tvm: ModuleType) -> None:
    """The base kind stays llvm (TVM takes new kinds from C++ only); ``model`` names the preset."""
    from torq_byoc.npu_model.presets import preset_names

    for tag, preset in [(TARGET, "sl2610"), *((f"{TARGET}/{name}", name) for name in preset_names())]:
        config = {"kind": "llvm", "keys": ["cpu", TARGET], "device": TARGET, "model": f"torq/{preset}"}
        tvm.target.register_tag(tag, config, override=True)


def _register_pipeline(tvm: ModuleType) -> None:
    from tvm import relax
    from tvm.relax.pipeline import PIPELINE_MAP

    if TARGET in PIPELINE_MAP:
        return

    @relax.register_pipeline(TARGET)
    def torq_pipeline() -> Any:
        def offload(module: Any, _context: Any) -> Any:
            from torq_byoc.compiler import offload as compile_partitions

            target = tvm.target.Target.current(allow_none=True)
            return compile_partitions(module, hw=preset_of(target) if target is not None else "sl2610")

        step = tvm.transform.module_pass(offload, opt_level=0, name="torq.Offload")
        return tvm.transform.Sequential([step, relax.get_pipeline("default")])


def _register_codegen(tvm: ModuleType) -> None:
    import tvm_ffi

    def codegen(functions: Any, _options: Any, _constants: Any) -> list[Any]:
        from torq_byoc.codegen_module import c_source_modules

        return c_source_modules(functions)

    tvm_ffi.register_global_func(CODEGEN_HOOK, codegen, override=True)
