"""What this machine offers: versions, compilers, and whether onnxruntime's integer kernels can be believed."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from typing import Any

import numpy as np

PACKAGES = {
    "apache-tvm": "tvm",
    "numpy": "numpy",
    "ml_dtypes": "ml_dtypes",
    "onnx": "onnx",
    "click": "click",
    "tqdm": "tqdm",
    "rich": "rich",
    "jinja2": "jinja2",
    "msgspec": "msgspec",
    "PyYAML": "yaml",
    "threadpoolctl": "threadpoolctl",
    "wrapt": "wrapt",
}
"""Distributions that everything needs, with the module that each provides."""

PYTHON = ((3, 11), (3, 13))


@dataclass(frozen=True)
class Check:
    """One finding.  ``status`` is "ok", "warning" (something optional is missing) or "missing"."""

    name: str
    status: str
    detail: str


def examine() -> dict[str, Any]:
    """All findings, and which reference an integer result can be compared with."""
    checks = [_python(), *(_package(*item) for item in PACKAGES.items()), _llvm(), _c_compiler()]
    runtime, exact = _onnxruntime()
    checks += [runtime, _optuna()]
    return {
        "checks": [asdict(check) for check in checks],
        "platform": platform.platform(),
        "integer_reference": "torq_byoc.kernels.reference" + (" and onnxruntime" if exact else ""),
        "float_reference": "onnxruntime, optimisations off" if exact is not None else "onnx.reference",
        "healthy": all(check.status != "missing" for check in checks),
    }


def u8s8_is_exact() -> bool:
    """Whether onnxruntime multiplies unsigned by signed bytes without saturating (CPUs without VNNI do).

    The products of extreme values are compared with numpy's 64-bit integers, in an integer matrix product
    and in an integer convolution.
    """
    rng = np.random.default_rng(0)
    data = rng.integers(200, 256, (8, 256)).astype(np.uint8)
    weights = rng.choice(np.array([-128, 127], np.int8), (256, 16))
    weights[:, :4] = 127
    expected = data.astype(np.int64) @ weights.astype(np.int64)
    product = _integer_result("MatMulInteger", data, weights)
    image, kernel = data.T.reshape(1, 256, 8, 1), np.ascontiguousarray(weights.T).reshape(16, 256, 1, 1)
    convolved = _integer_result("ConvInteger", np.ascontiguousarray(image), kernel)
    return np.array_equal(product, expected) and np.array_equal(convolved.reshape(16, 8).T, expected)


def _integer_result(op: str, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of one integer operator, the weights being constant as in a model."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(op, ["data", "weights"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("data", TensorProto.UINT8, data.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"data": data})[0])


def _python() -> Check:
    low, high = PYTHON
    fits = low <= sys.version_info[:2] < high
    wanted = f">={low[0]}.{low[1]},<{high[0]}.{high[1]}"
    return Check("python", "ok" if fits else "missing", f"{platform.python_version()} (needs {wanted})")


def _package(distribution: str, module: str) -> Check:
    try:
        import_module(module)
        return Check(distribution, "ok", metadata.version(distribution))
    except Exception as error:  # noqa: BLE001 - a broken installation fails in any way
        return Check(distribution, "missing", f"{type(error).__name__}: {error}; pip install {distribution}")


def _probe(name: str, probe: Callable[[], str], remedy: str) -> Check:
    try:
        return Check(name, "ok", probe())
    except Exception as error:  # noqa: BLE001 - as above
        return Check(name, "missing", f"{type(error).__name__}: {error}; {remedy}")


def _llvm() -> Check:
    return _probe("LLVM in TVM", _compile_addition, "install the apache-tvm wheel, which contains LLVM")


def _compile_addition() -> str:
    """Compile and run one addition for this CPU."""
    import tvm
    from tvm import relax

    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    executable = tvm.compile(builder.get(), target=tvm.target.Target("llvm"))
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](np.arange(4, dtype=np.float32))
    if result.numpy().tolist() != [0, 2, 4, 6]:
        raise ArithmeticError(f"0..3 doubled is {result.numpy().tolist()}")
    return f"version {tvm.target.codegen.llvm_version_major()}, compiles and runs"


def _c_compiler() -> Check:
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return Check("C compiler", "ok", name)
    return Check("C compiler", "warning", "none: export_library and relax.ext.torq need one, all else works")


def _optuna() -> Check:
    """An optional package: one strategy of ``torq tune`` needs it."""
    found = _package("optuna", "optuna")
    if found.status == "ok":
        return found
    return Check("optuna", "warning", "not usable: pip install 'torq-byoc[tune]' for tune --strategy bayesian")


def _onnxruntime() -> tuple[Check, bool | None]:
    """The finding, and whether its integer kernels are exact; None when it is not installed."""
    try:
        version = metadata.version("onnxruntime")
    except metadata.PackageNotFoundError:
        return Check(
            "onnxruntime", "warning", "not installed: pip install 'torq-byoc[check]' for a second opinion"
        ), None
    try:
        exact = u8s8_is_exact()
    except Exception as error:  # noqa: BLE001 - an installation that cannot be loaded
        return Check("onnxruntime", "warning", f"{version} does not work: {type(error).__name__}: {error}"), None
    trust = "u8 x s8 is exact here" if exact else "u8 x s8 saturates here: integer results are not compared with it"
    return Check("onnxruntime", "ok" if exact else "warning", f"{version}, {trust}"), exact
