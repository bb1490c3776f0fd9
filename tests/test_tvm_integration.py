"""The same model through every documented call form, and executables that outlive the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import torq_byoc
from tests.cli.tools import INPUT, SHAPE, conv_model, mixed_model, samples
from torq_byoc import relay
from torq_byoc.frontend import prepare, to_relax
from torq_byoc.host_module import npu_functions
from torq_byoc.npu_model.presets import preset_names
from torq_byoc.quantize import quantize_model

ROOT = Path(__file__).parents[1]

MODELS = {
    "bf16": (conv_model, SHAPE),
    "with CPU operators": (mixed_model, (1, 4, 16)),
    "int8": (lambda: quantize_model(prepare(conv_model()), {INPUT: samples()}), SHAPE),
}


@pytest.fixture(scope="module", params=sorted(MODELS))
def case(request) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """A model, an input, and what ``torq_byoc.compile`` computes from it."""
    make, shape = MODELS[request.param]
    model = make()
    data = np.random.default_rng(5).normal(0, 2, shape).astype(np.float32)
    return model, data, torq_byoc.compile(model).run({INPUT: data})["y"]


def run_vm(executable: object, data: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()


def test_pipeline(case):
    model, data, expected = case
    executable = tvm.compile(to_relax(prepare(model)), target="torq", relax_pipeline="torq")
    np.testing.assert_array_equal(run_vm(executable, data), expected)


def test_relay_facade(case):
    model, data, expected = case
    module, params = relay.frontend.from_onnx(model, {INPUT: data.shape})
    library = relay.build(module, target="torq", params=params)
    runner = relay.GraphModule(library["default"](tvm.cpu(0)))
    runner.set_input(INPUT, data)
    runner.run()
    assert runner.get_num_outputs() == 1
    np.testing.assert_array_equal(runner.get_output(0).numpy(), expected)
    runner.run(**{INPUT: tvm.runtime.tensor(data)})
    np.testing.assert_array_equal(runner.get_output(0).numpy(), expected)


def test_saved_container(case, tmp_path):
    model, data, expected = case
    torq_byoc.compile(model).save(tmp_path / "m.torq")
    np.testing.assert_array_equal(torq_byoc.load(tmp_path / "m.torq").run({INPUT: data})["y"], expected)


@pytest.mark.parametrize("facade", ["pipeline", "relay"])
def test_exported_library_runs_with_the_runtime_alone(case, tmp_path, facade):
    model, data, expected = case
    path = tmp_path / "m.so"
    if facade == "relay":
        module, params = relay.frontend.from_onnx(model)
        relay.build(module, params=params).export_library(str(path))
    else:
        tvm.compile(to_relax(prepare(model)), target="torq", relax_pipeline="torq").export_library(str(path))
    np.save(tmp_path / "in.npy", data)
    code = f"""
import sys
import numpy as np, tvm
import torq_byoc.npu_model
from tvm import relax
module = tvm.runtime.load_module({str(path)!r})
x = tvm.runtime.tensor(np.load({str(tmp_path / "in.npy")!r}))
np.save({str(tmp_path / "out.npy")!r}, relax.VirtualMachine(module, tvm.cpu())["main"](x).numpy())
compiler = [m for m in sys.modules if m.startswith(("torq_byoc.codegen", "torq_byoc.schedules", "torq_byoc.compiler"))]
sys.exit(f"imported {{compiler}}" if compiler else 0)
"""
    result = _python(code)
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_run_codegen(case, tmp_path):
    """TVM's own codegen path: RunCodegen calls relax.ext.torq and links what it returns."""
    model, data, expected = case
    module = torq_byoc.partition_for_torq(to_relax(prepare(model)))
    functions = npu_functions(module)
    assert functions
    module = relax.transform.RunCodegen()(module)
    assert not npu_functions(module)
    executable = tvm.compile(module, target=tvm.target.Target("llvm"))
    executable.export_library(str(tmp_path / "m.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "m.so"))
    np.testing.assert_array_equal(run_vm(loaded, data), expected)


@pytest.mark.parametrize("order", ["tvm, torq_byoc", "torq_byoc, tvm", "torq_byoc.npu_model, tvm, torq_byoc"])
def test_registration_in_any_import_order(order):
    code = f"""
import {order}
import tvm_ffi
target = tvm.target.Target("torq")
assert target.kind.name == "llvm" and "torq" in target.keys
assert tvm.relax.get_pipeline("torq")
assert tvm_ffi.get_global_func("relax.ext.torq", allow_missing=True)
assert tvm_ffi.get_global_func("torq.runtime.run", allow_missing=True)
"""
    result = _python(code)
    assert result.returncode == 0, result.stderr


def test_every_preset_is_a_target(case):
    from torq_byoc.target import preset_of

    for preset in preset_names():
        assert preset_of(tvm.target.Target(f"torq/{preset}")) == preset
    model, data, expected = case
    library = relay.build(to_relax(prepare(model)), target="torq/sl2610-1slice")
    runner = relay.GraphModule(library["default"](tvm.cpu(0)))
    runner.run(**{INPUT: data})
    np.testing.assert_array_equal(runner.get_output(0).numpy(), expected)


def test_a_machine_that_does_not_exist_is_named_with_the_nearest():
    """By name, and in a target made by hand; ``tvm.target.Target`` has only its own words for an unknown tag."""
    module, params = relay.frontend.from_onnx(conv_model())
    with pytest.raises(torq_byoc.HardwareConfigError, match="did you mean 'lram64'"):
        relay.build(module, target="torq/lram46", params=params)
    target = tvm.target.Target({"kind": "llvm", "model": "torq/lram46"})
    with pytest.raises(torq_byoc.HardwareConfigError, match="did you mean 'lram64'"):
        relay.build(module, target=target, params=params)


def test_partition_for_torq_marks_functions():
    module = torq_byoc.partition_for_torq(to_relax(prepare(conv_model())))
    functions = npu_functions(module)
    assert list(functions) == ["torq_partition_0"]
    assert str(functions["torq_partition_0"].attrs["global_symbol"]) == "torq_partition_0"
    relax.analysis.well_formed(module)


def test_patterns_are_in_the_registry():
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    from torq_byoc.relay_patterns import register

    register()
    names = {pattern.name for pattern in get_patterns_with_prefix("torq")}
    assert {"torq.conv2d", "torq.bf16.conv2d", "torq.softmax"} <= names


def test_graph_module_refuses_unknown_and_missing_inputs():
    module, params = relay.frontend.from_onnx(mixed_model())
    runner = relay.GraphModule(relay.build(module, params=params)["default"](tvm.cpu(0)))
    with pytest.raises(torq_byoc.ShapeError, match="no input nobody"):
        runner.set_input("nobody", np.zeros(1))
    with pytest.raises(torq_byoc.ShapeError, match="not set"):
        runner.run()


def test_parameters_are_bound_by_name():
    module = to_relax(prepare(mixed_model()))
    name = module["main"].params[0].name
    data = np.random.default_rng(0).normal(0, 1, (1, 4, 16)).astype(np.float32)
    bound = relay.build(module, params={name: tvm.runtime.tensor(data)})
    runner = relay.GraphModule(bound["default"](tvm.cpu(0)))
    runner.run()
    expected = torq_byoc.compile(mixed_model()).run({INPUT: data})["y"]
    np.testing.assert_allclose(runner.get_output(0).numpy(), expected, rtol=0.02)
    with pytest.raises(torq_byoc.ShapeError, match="no parameter nobody"):
        relay.build(module, params={"nobody": data})


def _python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
