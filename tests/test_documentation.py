"""The documents say what is: links lead somewhere, lists are complete, examples run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import torq_byoc
from tests.cli.tools import INPUT, conv_model, samples
from torq_byoc.accuracy.result_json import result_data
from torq_byoc.cli.main import COMMANDS
from torq_byoc.errors import TorqError
from torq_byoc.npu_model.presets import preset_names
from torq_byoc.report.summary import summarize

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_named_source_files_exist(path):
    for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|npz|onnx))`", path.read_text()):
        assert (ROOT / name).exists() or (ROOT / "torq_byoc" / name).exists(), name


def test_command_line_document_names_every_command_and_pass():
    from torq_byoc.codegen.passes import NAMES

    text = (ROOT / "docs" / "cli.md").read_text()
    assert all(f"`torq {command}" in text for command in COMMANDS)
    assert all(f"`{name}`" in text for name in NAMES)
    assert all(name in text or name.startswith("lram") for name in preset_names())


def test_documents_name_every_rewrite():
    from torq_byoc.quantize.automatic import NAMES

    for document in ("cli.md", "quantization.md"):
        text = (ROOT / "docs" / document).read_text()
        assert all(f"`{name}`" in text for name in NAMES if name != "bias_correction"), document


def test_schema_document_names_every_field():
    text = (ROOT / "docs" / "json-schema.md").read_text()
    summary = summarize(torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}))
    for key, value in summary.items():
        assert f"`{key}" in text, key
        for inner in value if isinstance(value, dict) and key not in ("stages", "levels") else ():
            assert inner in text, f"{key}.{inner}"
    for field in summary["layers"][0]:
        assert f"`{field}`" in text, field
    for level, costs in summary["levels"].items():
        assert f"`{level}`" in text and all(f"`{name}`" in text for name in costs)


def test_schema_document_names_every_field_of_a_check():
    text = (ROOT / "docs" / "json-schema.md").read_text()
    section = text[text.index("## check") : text.index("## ops")]
    calibration = {INPUT: samples()}
    data = {INPUT: samples(2, seed=1), "labels": np.zeros(2, np.int64)}
    found = result_data(torq_byoc.check_model(conv_model(), data, precision="int8", calibration=calibration))
    nested = (found["labels"], found["outputs"][0], *found["layers"], found["cause"])
    for fields in (found, *nested, *(value for one in nested for value in one.values() if isinstance(value, dict))):
        for name in fields:
            assert f"`{name}`" in section, name


def test_schema_document_names_every_error():
    text = (ROOT / "docs" / "json-schema.md").read_text()
    assert all(f"`{kind.__name__}`" in text for kind in TorqError.__subclasses__())


def test_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shape = (1, 3, 224, 224)
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    weights = np.random.default_rng(1).normal(0, 0.2, (4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["input", "w"], ["y"], "conv", strides=[2, 2])],
        "example",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, "model.onnx")
    np.savez("data.npz", input=x)
    from torq_byoc.frontend import prepare, to_relax

    names = {"x": x, "onnx_model": model, "relax_module": to_relax(prepare(model))}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)  # noqa: S102 - our own document
    assert {"model.torq", "model.so"} <= {path.name for path in tmp_path.iterdir()}
    assert names["outputs"]["y"].shape == (1, 4, 111, 111)
