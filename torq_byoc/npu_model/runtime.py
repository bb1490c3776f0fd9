"""The runtime that TVM executables call: programs run on the simulator, found by their bytes.

A partition is compiled to ``R.call_dps_packed("torq.runtime.run", (program, inputs, *tensors))`` where
``program`` is a uint8 constant: the packed container of the partition.  Importing ``torq_byoc.npu_model``
registers the function as soon as TVM is imported, in either order.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from torq_byoc.errors import ProgramFormatError, ShapeError, TorqError
from torq_byoc.npu_model.container import unpack_container
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.program import Binding, Program
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import verify

if TYPE_CHECKING:
    from types import ModuleType

RUN_FUNCTION = "torq.runtime.run"
RUN_POINTER_FUNCTION = "torq.runtime.run_at"
MAX_LOADED = 64


class LoadedProgram:
    """A verified program with its simulator; calls convert at the boundary (float32 and bf16)."""

    def __init__(self, program: Program) -> None:
        verify(program)
        self.program = program
        self._simulator = Simulator(program)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference; float32 arrays are accepted and returned where the program has bf16."""
        converted = {
            binding.name: _to_machine(inputs[binding.name], binding)
            for binding in self.program.inputs
            if binding.name in inputs
        }
        unknown = {name: value for name, value in inputs.items() if name not in converted}
        return self._simulator.run({**converted, **unknown})


_KNOWN: WeakValueDictionary[str, LoadedProgram] = WeakValueDictionary()
_RECENT: OrderedDict[str, LoadedProgram] = OrderedDict()
_REFERENCE = b"torq-program:"


def reference_to(digest: str) -> bytes:
    """Bytes that stand for a program loaded elsewhere in the process (SHA-256 of its packed container)."""
    return _REFERENCE + digest.encode()


def load_program(blob: bytes) -> LoadedProgram:
    """The verified program of a packed container, or of a reference to one; equal bytes, equal object.

    Raises:
        ProgramFormatError: the bytes are not a program of this version, or refer to none that is loaded.
        VerificationError: the program is not safe to run.
    """
    if blob.startswith(_REFERENCE):
        key = blob[len(_REFERENCE) :].decode()
        if key not in _KNOWN:
            raise ProgramFormatError(
                "a host module refers to a program that is not loaded",
                where=key,
                remedy="load the whole container with torq_byoc.load",
            )
    else:
        key = hashlib.sha256(blob).hexdigest()
        if key not in _KNOWN:
            _KNOWN[key] = _RECENT[key] = LoadedProgram(Program.from_sections(unpack_container(blob)))
            while len(_RECENT) > MAX_LOADED:
                _RECENT.popitem(last=False)
    return _KNOWN[key]


def _to_machine(value: np.ndarray, binding: Binding) -> np.ndarray:
    if binding.dtype is DType.BF16 and value.dtype == np.float32:
        return value.astype(DType.BF16.numpy)
    return value


_BY_ADDRESS: dict[tuple[int, int], tuple[Any, LoadedProgram]] = {}


def run(blob: Any, inputs: int, *tensors: Any) -> None:
    """The packed function: ``blob`` a uint8 tensor, then ``inputs`` input and the output tensors.

    The constant is kept referenced while its program is cached, so its address identifies it.
    """
    key = (blob.data_ptr(), int(blob.shape[0]))
    if key not in _BY_ADDRESS:
        _BY_ADDRESS[key] = (blob, load_program(np.from_dlpack(blob).tobytes()))
        while len(_BY_ADDRESS) > MAX_LOADED:
            _BY_ADDRESS.pop(next(iter(_BY_ADDRESS)))
    _run_into(_BY_ADDRESS[key][1], inputs, [np.from_dlpack(tensor) for tensor in tensors])


def run_at(pointer: int, size: int, inputs: int, *tensors: Any) -> None:
    """The same for generated C code, which holds the program as static data."""
    _run_into(load_program(ctypes.string_at(pointer, size)), inputs, [np.from_dlpack(t) for t in tensors])


def _run_into(loaded: LoadedProgram, inputs: int, arrays: list[np.ndarray]) -> None:
    """Run with the first ``inputs`` arrays and copy the results into the others."""
    bindings = loaded.program.inputs
    results = loaded({binding.name: array for binding, array in zip(bindings, arrays[:inputs], strict=True)})
    for binding, target in zip(loaded.program.outputs, arrays[inputs:], strict=True):
        value = results[binding.name]
        if value.size != target.size:
            raise ShapeError(
                f"output {binding.name} has {value.shape}, the caller expects {target.shape}",
                where=binding.name,
                remedy="rebuild the executable and its programs together",
            )
        np.copyto(target, value.reshape(target.shape).astype(target.dtype, copy=False))


_FAILURES = threading.local()


def _remembering(function: Callable[..., None]) -> Callable[..., None]:
    """The function, leaving the error that it raises to ``take_failure``."""

    @functools.wraps(function)
    def remembering(*arguments: Any) -> None:
        try:
            function(*arguments)
        except TorqError as error:
            _FAILURES.last = error
            raise

    return remembering


def take_failure() -> TorqError | None:
    """What the last failed call in this thread raised: TVM hands it to its caller as a ``RuntimeError``."""
    failure: TorqError | None = getattr(_FAILURES, "last", None)
    _FAILURES.last = None
    return failure


def register(_tvm: ModuleType | None = None) -> None:
    """Register the runtime with TVM's function registry; safe to repeat."""
    import tvm_ffi

    tvm_ffi.register_global_func(RUN_FUNCTION, _remembering(run), override=True)
    tvm_ffi.register_global_func(RUN_POINTER_FUNCTION, _remembering(run_at), override=True)
