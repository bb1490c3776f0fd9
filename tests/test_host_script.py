"""The stored host module is a graph: text that would make its parser run anything else is refused unparsed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torq_byoc
from tests.frontend.fuzz_seeds import seeds
from torq_byoc.errors import ProgramFormatError, UnsupportedOpError
from torq_byoc.host_module import deserialize
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


def test_a_loop_nest_on_the_cpu_is_an_unsupported_operator() -> None:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("a", [2, 3]), ("b", [3, 4]))
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik")
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(UnsupportedOpError, match="einsum"):
        torq_byoc.compile(model)
