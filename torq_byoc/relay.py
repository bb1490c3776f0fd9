"""The Relay-shaped facade: ``from_onnx``, ``build``, ``GraphModule``, as scripts written for Relay call them.

TVM has had no Relay since 0.20; modules here are Relax modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from torq_byoc.compiler import offload
from torq_byoc.errors import ShapeError
from torq_byoc.frontend import prepare, to_relax
from torq_byoc.target import preset_of, resolved


def from_onnx(
    model: onnx.ModelProto, shape: Mapping[str, Sequence[int]] | None = None
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Import an ONNX model.

    Args:
        model: the model.
        shape: input shapes by name, for inputs that have none of their own.

    Returns:
        The module and its parameters: an empty dict, as weights are constants of the module.
    """
    return to_relax(prepare(model, dict(shape or {}))), {}


frontend = SimpleNamespace(from_onnx=from_onnx)


class Library:
    """What ``build`` returns; ``lib["default"](device)`` makes the module that ``GraphModule`` wraps."""

    def __init__(self, executable: Any, inputs: tuple[str, ...]) -> None:
        self.executable = executable
        self.inputs = inputs

    def __getitem__(self, name: str) -> Any:
        if name != "default":
            raise KeyError(name)
        return lambda device: _Instance(relax.VirtualMachine(self.executable, device), self.inputs)

    def export_library(self, path: str) -> None:
        """Write a shared library; a process that imports ``torq_byoc.npu_model`` can load it."""
        self.executable.export_library(path)


class _Instance:
    def __init__(self, machine: relax.VirtualMachine, inputs: tuple[str, ...]) -> None:
        self.machine = machine
        self.inputs = inputs


def build(
    mod: tvm.IRModule,
    target: str | tvm.target.Target = "torq",
    params: Mapping[str, Any] | None = None,
) -> Library:
    """Build a module for the NPU and the CPU.

    Args:
        mod: a Relax module with ``main``.
        target: "torq", "torq/<preset>", or a Target made from them.
        params: values for parameters of ``main``, by name.
    """
    mod, inputs = _bound(mod, params or {})
    machine = resolved(target)
    lowered = offload(mod, hw=preset_of(machine))
    return Library(tvm.compile(lowered, target=machine), inputs)


def _bound(mod: tvm.IRModule, params: Mapping[str, Any]) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """The module with parameters bound, and the names of the inputs that remain.

    Raises:
        ShapeError: a name is no parameter of ``main``.
    """
    variables = [str(var.name) for var in mod["main"].params]
    names = (mod["main"].attrs or {}).get("torq.input_names")
    inputs = [str(name) for name in names] if names else variables
    variable = {**dict(zip(variables, variables, strict=True)), **dict(zip(inputs, variables, strict=True))}
    unknown = sorted(set(params) - set(variable))
    if unknown:
        raise ShapeError(f"main has no parameter {', '.join(unknown)}", remedy=f"parameters are {', '.join(inputs)}")
    values = {variable[name]: _constant(value) for name, value in params.items()}
    remaining = tuple(name for name in inputs if variable[name] not in values)
    return (relax.transform.BindParams("main", values)(mod) if values else mod), remaining


def _constant(value: Any) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


class GraphModule:
    """``set_input`` / ``run`` / ``get_output`` on a built module."""

    def __init__(self, module: _Instance) -> None:
        self._module = module
        self._values: dict[str, np.ndarray] = {}
        self._outputs: list[np.ndarray] = []

    def set_input(self, key: str | int | None = None, value: Any = None, **inputs: Any) -> None:
        """Set one input by name or position, or several by keyword."""
        if key is not None:
            inputs = {**inputs, (self._module.inputs[key] if isinstance(key, int) else key): value}
        for name, array in inputs.items():
            if name not in self._module.inputs:
                raise ShapeError(
                    f"the module has no input {name}", remedy=f"inputs are {', '.join(self._module.inputs)}"
                )
            self._values[name] = _constant(array)

    def run(self, **inputs: Any) -> None:
        """Run one inference with the inputs set so far."""
        self.set_input(**inputs)
        missing = [name for name in self._module.inputs if name not in self._values]
        if missing:
            raise ShapeError(f"inputs are not set: {', '.join(missing)}", remedy="call set_input for each")
        arguments = [tvm.runtime.tensor(np.asarray(self._values[n], order="C")) for n in self._module.inputs]
        result = self._module.machine["main"](*arguments)
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        self._outputs = [field.numpy() for field in fields]

    def get_num_outputs(self) -> int:
        """Number of outputs of the last run."""
        return len(self._outputs)

    def get_output(self, index: int) -> tvm.runtime.Tensor:
        """An output of the last run."""
        return tvm.runtime.tensor(self._outputs[index])
