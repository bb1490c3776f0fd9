"""Calibration data: what is accepted, and one clear error for everything else."""

import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from torq_byoc.errors import CalibrationError
from torq_byoc.quantize.data import load_calibration, samples


def identity(shape: list[int]) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    return helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))


def test_first_axis_counts_samples() -> None:
    data = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}
    feeds = list(samples(identity([1, 3]), data))
    assert [feed["x"].shape for feed in feeds] == [(1, 3)] * 4
    assert np.array_equal(feeds[2]["x"], [[6, 7, 8]])


def test_a_batch_takes_several_samples() -> None:
    feeds = list(samples(identity([2, 3]), {"x": np.zeros((6, 3), np.float32)}))
    assert [feed["x"].shape for feed in feeds] == [(2, 3)] * 3


def test_labels_are_not_an_input() -> None:
    data = {"x": np.zeros((2, 3), np.float32), "labels": np.zeros(2)}
    assert [set(feed) for feed in samples(identity([1, 3]), data)] == [{"x"}, {"x"}]


def test_an_input_called_labels_is_the_input() -> None:
    model = identity([1, 3])
    model.graph.input[0].name = model.graph.node[0].input[0] = "labels"
    data = {"labels": np.zeros((2, 3), np.float32), "class_labels": np.zeros(2)}
    assert [set(feed) for feed in samples(model, data)] == [{"labels"}, {"labels"}]


def test_an_array_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array(member, np.zeros((2, 3), np.float32))
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        warnings.simplefilter("ignore")
        for name in ("x.npy", "y.npy", "x.npy"):
            archive.writestr(name, member.getvalue())
    with pytest.raises(CalibrationError, match="more than once: 'x'") as refusal:
        load_calibration(tmp_path / "d.npz")
    assert "2 members" in refusal.value.why and refusal.value.where == str(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"y": np.zeros((2, 3), np.float32)}, "not named like"),
        ({"x": np.zeros((2, 4), np.float32)}, "wrong shape"),
        ({"x": np.zeros((0, 3), np.float32)}, "holds no samples"),
        ({"x": np.zeros((2, 3), np.complex64)}, "wrong type"),
        ({"x": np.array([[1, np.nan, 2]], np.float32)}, "NaN or infinite"),
        ({"x": np.array([[1, np.inf, 2]], np.float32)}, "NaN or infinite"),
    ],
)
def test_bad_arrays_are_named(data: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        list(samples(identity([1, 3]), data))


def test_folder_of_samples_is_stacked_in_name_order(tmp_path: Path) -> None:
    for index in (1, 0):
        np.savez(tmp_path / f"s{index}.npz", x=np.full((1, 3), index, np.float32))
    assert np.array_equal(load_calibration(tmp_path)["x"][:, 0], [0, 1])


def test_unlike_samples_in_a_folder(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 3)))
    np.savez(tmp_path / "b.npz", x=np.zeros((1, 4)))
    with pytest.raises(CalibrationError, match="differ in names or shapes"):
        load_calibration(tmp_path)


def test_object_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(CalibrationError, match="cannot be read as npz"):
        load_calibration(tmp_path / "o.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04garbage", b"\x00" * 64])
def test_what_is_no_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(CalibrationError):
        load_calibration(path)


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="No such file"):
        load_calibration(tmp_path / "none.npz")
    with pytest.raises(CalibrationError, match="holds no npz"):
        load_calibration(tmp_path)
