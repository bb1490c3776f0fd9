"""Models that cannot be compiled: one named error with a remedy, exit code 2, nothing left behind."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.bad_models import BAD_MODELS, UNSUPPORTED_NAMES, with_scale
from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import INPUT, conv_model, torq


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models(case, tmp_path, capsys):
    error, content = BAD_MODELS[case]
    folder = tmp_path / "model"
    folder.mkdir()
    model = folder / "m.onnx"
    model.write_bytes(content(folder))
    before = files_in(tmp_path)
    message = assert_refused(capsys, error, "compile", model, "-o", tmp_path / "o.torq")
    for name in UNSUPPORTED_NAMES.get(case, ()):
        assert name in message["where"], "all unsupported operators are listed at once"
    assert files_in(tmp_path) == before
    assert torq(capsys, "bench", model, "--json").json["error"] == error
    coverage = torq(capsys, "ops", model, "--json")
    if error == "UnsupportedOpError":  # what ops is asked for: it shows these operators beside the others
        assert coverage.code == 0 and coverage.json["counts"]["refused"] > 0
    else:
        assert coverage.code == 2 and coverage.json["error"] == error


def test_too_little_lram_is_a_result_with_numbers(tmp_path, capsys):
    """One window of this pool alone is larger than the memory."""
    node = helper.make_node("MaxPool", [INPUT], ["y"], "wide_pool", kernel_shape=[250, 250], strides=[2, 2])
    graph = helper.make_graph(
        [node],
        "wide",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 1, 256, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    message = assert_refused(capsys, "LramOverflowError", "compile", model, "-o", tmp_path / "o.torq", "--hw", "lram64")
    assert message["where"] == "wide_pool"
    assert f"{250 * 250 * 2} B" in message["why"], "a window of bf16"
    assert f"{64 * 1024 - 1280} B are usable" in message["why"]
    assert files_in(tmp_path) == {model}


def test_bf16_of_a_quantized_model(tmp_path, capsys):
    model = conv_model()
    with_scale(0.5)(model)
    written(tmp_path / "m.onnx", model.SerializeToString())
    assert_refused(
        capsys, "QuantizationError", "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--precision", "bf16"
    )
