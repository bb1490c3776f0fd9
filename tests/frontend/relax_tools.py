"""Running what the importer makes, and comparing it with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.frontend.onnx_tools import random_feeds, run_reference
from torq_byoc.frontend import to_relax

tvm = pytest.importorskip("tvm")
relax = tvm.relax

F32 = np.float32


def calls(module) -> list:
    """The calls of main, in order."""
    found = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(getattr(binding, "value", None), relax.Call):
                found.append(binding.value)
    return found


def relax_ops(module) -> list[str]:
    return [c.op.name.removeprefix("relax.") for c in calls(module)]


def run_relax(module, feeds) -> list[np.ndarray]:
    executable = tvm.compile(relax.transform.DecomposeOpsForInference()(module), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    names = [str(n) for n in module["main"].attrs["torq.input_names"]]
    result = machine["main"](*[tvm.runtime.tensor(feeds[n]) for n in names])
    return [t.numpy() for t in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def assert_matches(model: onnx.ModelProto, rtol: float = 2e-6, feeds=None) -> None:
    feeds = feeds or random_feeds(model)
    wanted, got = run_reference(model, feeds), run_relax(to_relax(model), feeds)
    for a, b in zip(wanted, got, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        bound = rtol * max(1e-9, float(np.abs(a.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=0, atol=bound)


def const(**arrays):
    return {name: np.asarray(value) for name, value in arrays.items()}


def weights(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


X4 = {"x": [2, 6, 5, 4]}
