"""The stored host module is a graph: text that would make its parser run anything else is refused unparsed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax, topi

import torq_byoc
from tests.frontend.fuzz_seeds import seeds
from torq_byoc.errors import ProgramFormatError, UnsupportedOpError
from torq_byoc.host_module import build_host, deserialize, serialize
from torq_byoc.host_script import check_script
from torq_byoc.npu_model.container import pack_container, unpack_container

GOOD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4), dtype="float32"), constant_0: R.Tensor((9,), dtype="uint8")) -> R.Tensor((1, 4)):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            lv = R.call_dps_packed("torq.runtime.run", (constant_0, 1, x), out_ty=R.Tensor((1, 4), dtype="float32"))
            gv = R.nn.softmax(R.add(lv, R.const(-0.5, "float32")), axis=-1)
            R.output(gv)
        return gv
"""


def test_a_graph_of_operators_is_let_through():
    check_script(GOOD)


def test_what_the_compiler_stores_reads_back():
    model = torq_byoc.compile(onnx.load_from_string(seeds()["quantized"]))
    assert b"call_dps_packed" in unpack_container(model.host)["script"]
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 5)).astype(np.float32)
    assert model.run({"x": x})["y"].shape == (1, 4, 5, 5)
    assert "main" in {var.name_hint for var in deserialize(model.host).functions}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(1, 4), dtype", '(__import__("os").system("touch harm"),), dtype'),
        ("(1, 4), dtype", "(\"__import__('os').abort()\",), dtype"),
        ("(1, 4), dtype", "(exec,), dtype"),
        ("@I.ir_module", "import os\n@I.ir_module"),
        ("@R.function", "@R.function.__globals__"),
        ("@R.function", "@(lambda f: f)"),
        ("@R.function", "@R.builder.ir.tvm"),
        ("x: R.Tensor", "x=[y for y in ()], z: R.Tensor"),
        ("x: R.Tensor", "R: R.Tensor"),
        ("return gv", "return gv.__class__"),
        ("return gv", 'return f"{gv}"'),
        ("return gv", "return gv(gv)"),
        ('"torq.runtime.run"', '"runtime.ModuleLoadFromFile"'),
        ('"torq.runtime.run"', "lv"),
        ("R.call_dps_packed", "R.call_pure_packed"),
        ("R.call_dps_packed", "R.call_builtin_with_ctx"),
        ("R.nn.softmax", "R.ExternFunc"),
        ("R.nn.softmax", "R.vm.kill_object"),
        ("axis=-1", "axis=-(" + "1" * 5),
        ("axis=-1", "axis=" + "(" * 5000),
    ],
)
def test_anything_else_is_refused_before_it_is_parsed(old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(ProgramFormatError, match="not a graph of operators"):
        deserialize(pack_container({"script": text.encode()}))
    assert not list(tmp_path.iterdir())


def host_function(op, *shapes: tuple[int, ...]) -> tvm.IRModule:
    """A module whose ``main`` calls one function on tensors of these shapes."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(op(builder, *parameters))
        builder.emit_func_output(result)
    return builder.get()


def test_a_loop_nest_on_the_cpu_is_an_unsupported_operator():
    module = host_function(lambda builder, x: builder.call_te(topi.flip, x, axis=0), (2, 3))
    with pytest.raises(UnsupportedOpError, match="flip"):
        serialize(module)


def test_an_operator_without_code_is_refused_when_storing_and_named():
    def unbuildable(builder: relax.BlockBuilder, x: relax.Var, gain: relax.Var) -> relax.Expr:
        scaled = builder.emit(relax.op.nn.relu(x))
        return relax.op.nn.rms_norm(scaled, gain, axes=[0, 1])

    with pytest.raises(UnsupportedOpError) as caught:
        serialize(host_function(unbuildable, (2, 3), (2, 3)))
    assert "rms_norm" in caught.value.where and "relu" not in caught.value.where
    assert caught.value.why and caught.value.remedy


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, 1e-45, -0.0, 3.4028235e38])
def test_every_float_constant_reads_back(value):
    module = host_function(lambda builder, x: relax.op.add(x, relax.const(np.float32(value))), (3,))
    x = np.zeros(3, np.float32) if value == value and abs(value) < 1 else np.ones(3, np.float32)
    (found,) = build_host(deserialize(serialize(module)))([x])
    np.testing.assert_array_equal(found, x + np.float32(value))
