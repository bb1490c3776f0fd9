"""load_model on files that are not what they claim to be."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.onnx_tools import graph_model, node
from torq_byoc.errors import ModelFileError
from torq_byoc.frontend import load_model


def small_model() -> onnx.ModelProto:
    weight = np.arange(8, dtype=np.float32).reshape(2, 4)
    return graph_model([node("MatMul", ["x", "w"], "y")], {"x": [1, 2]}, ["y"], {"w": weight})


def external_model(folder, data: bytes | None = b"\0" * 32, name: str = "w.bin", **entries: str):
    """A model whose weight (32 bytes) lies in ``name``; entries override the external-data keys."""
    model = small_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": name, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    if data is not None:
        (folder / name).write_bytes(data)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_reads_what_was_written(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(small_model().SerializeToString())
    assert load_model(str(path)) == small_model()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 this is a zip file, or some such thing", "not an ONNX"),
        (b"\xff" * 64, "not an ONNX"),
        (b"\0" * 64, "not an ONNX"),
        (b"\x08\x08", "not an ONNX"),  # an IR version and nothing else
        (small_model().SerializeToString()[:-20], "not an ONNX"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, part):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=part) as caught:
        load_model(path)
    assert str(path) in caught.value.where
    assert caught.value.remedy


def test_missing_file_directory_and_device(tmp_path):
    for bad in (tmp_path / "absent.onnx", tmp_path, "/dev/zero", "a\0b"):
        with pytest.raises(ModelFileError):
            load_model(bad)


def test_nested_graphs_are_limited(tmp_path):
    inner = helper.make_graph([node("Identity", ["x"], "y")], "g", [], [helper.make_empty_tensor_value_info("y")])
    for i in range(20):
        branch = node("If", ["c"], f"y{i}", then_branch=inner, else_branch=inner)
        # The two branches of one level share the level below, so only the first one is kept deep.
        branch.attribute[1].g.CopyFrom(helper.make_graph([], "e", [], []))
        inner = helper.make_graph([branch], "g", [], [helper.make_empty_tensor_value_info(f"y{i}")])
    path = tmp_path / "deep.onnx"
    path.write_bytes(helper.make_model(inner).SerializeToString())
    with pytest.raises(ModelFileError, match="nested|not an ONNX"):
        load_model(path)


def test_external_data_is_read(tmp_path):
    weight = np.arange(8, dtype=np.float32)
    path = external_model(tmp_path, b"junk" + weight.tobytes() + b"tail", offset="4", length="32")
    loaded = load_model(path)
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[0]), weight.reshape(2, 4))
    assert loaded.graph.initializer[0].data_location == TensorProto.DEFAULT


def test_external_data_without_offset_and_length(tmp_path):
    assert load_model(external_model(tmp_path)).graph.initializer[0].raw_data == b"\0" * 32


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"offset": "-4"}, "not a byte count"),
        ({"length": "-1"}, "not a byte count"),
        ({"length": "31"}, "its length is 31"),
        ({"length": str(2**62)}, "not a byte count|its length is"),
        ({"offset": "9" * 30}, "not a byte count"),
        ({"offset": "1"}, "bytes up to 33"),
        ({"offset": "١"}, "not a byte count"),  # a digit, but not an ASCII one
        ({"offset": ""}, "not a byte count"),
        ({"basepath": "/etc"}, "basepath"),
        ({"location": ""}, "no file is named"),
        ({"location": "/etc/hostname"}, "not relative"),
        ({"location": "../w.bin"}, "outside|cannot be found"),
        ({"location": "absent.bin"}, "cannot be found"),
        ({"location": "."}, "regular|cannot be read|outside"),
        ({"location": "w.bin\0x"}, "not relative"),
        ({"location": "a" * 5000}, "cannot be found"),
    ],
)
def test_hostile_external_entries(tmp_path, entries, why):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    with pytest.raises(ModelFileError, match=why) as caught:
        load_model(external_model(folder, **entries))
    assert "'w'" in caught.value.where


def test_symlink_out_of_the_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 32)
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFileError, match="outside"):
        load_model(external_model(folder, None))


def test_symlinked_folder_is_no_way_out(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "w.bin").write_bytes(b"\0" * 32)
    (folder / "sub").symlink_to(tmp_path / "other")
    with pytest.raises(ModelFileError, match="outside"):
        load_model(external_model(folder, None, name="sub/w.bin"))


def test_hard_link_is_refused(tmp_path):
    (tmp_path / "original").write_bytes(b"\0" * 32)
    os.link(tmp_path / "original", tmp_path / "w.bin")
    with pytest.raises(ModelFileError, match="2 hard links"):
        load_model(external_model(tmp_path, None))


def test_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ModelFileError, match="regular"):
        load_model(external_model(tmp_path, None))


def test_huge_external_shape_is_refused_before_reading(tmp_path):
    path = external_model(tmp_path)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[0] = 2**40
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match="exceeds"):
        load_model(path)
