"""inspect, bench, ops, doctor, demo."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.tools import cpu_model, mixed_model, torq
from torq_byoc.report import environment


def test_inspect_shares_the_schema_of_compile(workspace, tmp_path, capsys):
    compiled = torq(
        capsys, "compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", workspace.calibration, "--json"
    ).json
    inspected = torq(capsys, "inspect", tmp_path / "o.torq", "--json").json
    written = {"output", "report"}
    assert compiled.keys() - written <= inspected.keys()
    unknown_later = {"compile_seconds", "stages", "passes", "calibration", "plan", *written}
    for key in compiled.keys() - unknown_later:
        assert inspected[key] == compiled[key], key
    assert inspected["compile_seconds"] is None


def test_inspect_lists_header_memory_and_levels(workspace, capsys):
    data = torq(capsys, "inspect", workspace.int8, "--json").json
    assert data["container"]["bytes"] == workspace.int8.stat().st_size
    assert {"model", "partition/0/program", "partition/0/image"} <= {s["name"] for s in data["container"]["sections"]}
    assert list(data["levels"]) == sorted(["tensor", "scheduled", "torq_hl", "torq_hw"])
    assert data["levels"]["torq_hl"]["out_bytes"] == data["dma"]["out_bytes"]
    memory = data["memory"][0]
    assert {region["kind"] for region in memory["xram"]} >= {"input", "output", "weights", "program", "nss"}
    assert max(held for _, held in memory["lram_in_use"]) == data["lram"]["peak"]
    assert memory["lram_in_use"][-1][1] == 0


def test_disassembly_names_layers_engines_and_agents(workspace, capsys):
    full = torq(capsys, "inspect", workspace.int8, "--disassemble", "--lines", 0).out
    for expected in ("block 0", "start dma_in", "start slice0", "conv+relu", "DEDR", "DEQW", "wait"):
        assert expected in full
    short = torq(capsys, "inspect", workspace.int8, "--disassemble", "--lines", 5, "--json").json["disassembly"]
    assert len(short) == 6 and short[-1].startswith("... ")
    pool = torq(capsys, "inspect", workspace.int8, "--disassemble", "--layer", "pool", "--json").json["disassembly"]
    assert any("pool" in line for line in pool) and not any("dense" in line for line in pool)


def test_inspect_prints_tables(workspace, capsys):
    text = torq(capsys, "inspect", workspace.int8, "--memory").out
    for expected in ("lower bound", "conv+relu", "XRAM", "LRAM", "torq_hw", "SHA-256"):
        assert expected in text


def test_bench_measures_both_baselines_and_the_host_part(workspace, capsys):
    result = torq(capsys, "bench", workspace.model, "--calib", workspace.calibration, "--budget", 0.05, "--json")
    data = result.json
    assert data["cpu_baseline"]["tvm_llvm"]["us"] > 0
    assert data["cpu_baseline"]["onnxruntime"]["us"] > 0
    assert data["cycles"]["host_us"] > 0, "quantize and dequantize run on the CPU"
    assert data["bound_by"] in ("dma_in", "dma_out", "slices")


def test_bench_says_why_a_baseline_is_missing(workspace, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    baseline = torq(capsys, "bench", workspace.model, "--budget", 0.01, "--json").json["cpu_baseline"]
    assert "onnxruntime" in baseline["onnxruntime"]["unavailable"] and baseline["tvm_llvm"]["us"] > 0


def test_bench_of_a_container_has_no_baseline_and_says_so(workspace, capsys):
    assert torq(capsys, "bench", workspace.bf16, "--budget", 0.01, "--json").json["cpu_baseline"] is None
    assert "no CPU baseline" in torq(capsys, "bench", workspace.bf16, "--budget", 0.01).out


def test_bench_knows_a_container_by_its_content(workspace, tmp_path, capsys):
    (tmp_path / "model.bin").write_bytes(workspace.bf16.read_bytes())
    assert torq(capsys, "bench", tmp_path / "model.bin", "--budget", 0.01, "--json").json["cpu_baseline"] is None


def test_ops_of_a_model_places_every_node(workspace, capsys):
    data = torq(capsys, "ops", workspace.model, "--calib", workspace.calibration, "--json").json
    places = {row["node"]: row["place"] for row in data["nodes"]}
    assert [places[n] for n in ("conv", "relu", "pool", "mean", "dense")] == ["npu"] * 5
    assert all(row["detail"] for row in data["nodes"])
    assert sum(data["counts"].values()) == len(data["nodes"])


def test_ops_gives_the_reason_for_the_cpu(tmp_path, capsys):
    onnx.save(mixed_model(), tmp_path / "m.onnx")
    rows = {row["node"]: row for row in torq(capsys, "ops", tmp_path / "m.onnx", "--json").json["nodes"]}
    assert rows["running_sum"]["place"] == "cpu" and rows["running_sum"]["detail"]
    assert rows["first"]["place"] == rows["last"]["place"] == "npu"


def test_ops_places_a_recurrent_cell_that_is_written_out(tmp_path, capsys):
    rng = np.random.default_rng(0)
    weights = {"w": (1, 32, 6), "r": (1, 32, 8), "b": (1, 64)}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], "cell", hidden_size=8)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1, 1, 8])],
        [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    rows = torq(capsys, "ops", tmp_path / "m.onnx", "--json").json["nodes"]
    assert [(row["node"], row["place"]) for row in rows] == [("cell", "npu")]
    assert "matmul" in rows[0]["detail"]


@pytest.fixture(scope="module")
def operators(capsys_module):
    return capsys_module("ops", "--json")


@pytest.fixture(scope="module")
def capsys_module():
    """Commands whose output several tests look at, run once."""
    import contextlib
    import io

    from torq_byoc.cli.main import main

    def call(*arguments: str) -> dict:
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream), pytest.raises(SystemExit):
            main(list(arguments))
        return json.loads(stream.getvalue())

    return call


def test_operator_table_knows_npu_composition_and_cpu(operators):
    rows = {row["op"]: row["mappings"] for row in operators["operators"]}
    assert rows["Conv"]["int8"]["place"] == "npu" and rows["Conv"]["int8"]["detail"] == "conv2d"
    assert rows["Softmax"]["int8"]["place"] == "composition"
    assert rows["CumSum"]["bf16"]["place"] == "cpu" and rows["CumSum"]["bf16"]["detail"]
    assert "Loop" in operators["unsupported"]


def test_operator_document_is_up_to_date(operators):
    from pathlib import Path

    from torq_byoc.report.operators_markdown import markdown_table

    def rows(text: str) -> list[str]:
        """The table; the lists below it follow the installed onnx."""
        return [line for line in text.splitlines() if line.startswith("| ")]

    document = Path(__file__).parents[2] / "docs" / "operators.md"
    assert rows(document.read_text()) == rows(markdown_table(operators)), "torq ops --markdown > docs/operators.md"


def test_doctor_finds_this_machine_fit(capsys):
    result = torq(capsys, "doctor", "--json")
    assert result.code == 0 and result.json["healthy"]
    names = {check["name"] for check in result.json["checks"]}
    assert {"python", "apache-tvm", "numpy", "onnx", "LLVM in TVM", "C compiler", "onnxruntime"} <= names


def test_doctor_fails_when_something_essential_is_missing(capsys, monkeypatch):
    monkeypatch.setitem(environment.PACKAGES, "torq-missing-thing", "torq_missing_thing")
    result = torq(capsys, "doctor", "--json")
    assert result.code == 1
    assert [c["name"] for c in result.json["checks"] if c["status"] == "missing"] == ["torq-missing-thing"]


def test_doctor_distrusts_saturating_integer_kernels(capsys, monkeypatch):
    monkeypatch.setattr(environment, "u8s8_is_exact", lambda: False)
    data = torq(capsys, "doctor", "--json").json
    assert data["healthy"] and "onnxruntime" not in data["integer_reference"]


def test_demo_keeps_the_accuracy_and_writes_a_timeline(tmp_path, capsys):
    result = torq(capsys, "demo", "--trace", tmp_path / "t.json", "--json")
    data = result.json
    assert result.code == 0 and data["passed"]
    accuracy = data["accuracy"]
    assert accuracy["images"] == 540 and accuracy["float"] >= 0.98
    assert accuracy["int8"] >= accuracy["float"] - 0.003
    assert data["seconds"] < 60
    assert data["cpu_baseline"]["tvm_llvm"]["us"] > 0 and data["dma"]["in_bytes"] > 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_embedded_data_is_small_and_disjoint():
    from importlib.resources import files

    folder = files("torq_byoc") / "data"
    assert sum(len(item.read_bytes()) for item in folder.iterdir()) < 1 << 20
    test = np.load(folder / "digits_test.npz")["image"]
    calibration = np.load(folder / "digits_calibration.npz")["image"]
    seen = {image.tobytes() for image in calibration}
    assert not any(image.tobytes() in seen for image in test)


def test_a_model_for_the_cpu_alone_is_reported_as_such(tmp_path, capsys):
    model = tmp_path / "m.onnx"
    onnx.save(cpu_model(), model)
    assert "nothing of it runs on the NPU" in torq(capsys, "compile", model, "-o", tmp_path / "o.torq").out
    assert "onnxruntime" in torq(capsys, "bench", model, "--budget", 0.01).out
    for command in (("inspect", tmp_path / "o.torq", "--memory", "--disassemble"), ("ops", model)):
        assert torq(capsys, *command).code == 0
