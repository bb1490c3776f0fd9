"""Tiny models and data on disk, and ``torq`` called in this process with its output captured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.cli.main import main

INPUT = "x"
SHAPE = (1, 3, 10, 9)


@dataclass(frozen=True)
class Result:
    """Exit code and both streams of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        return json.loads(self.out)


def torq(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    """Run a command line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Result(exit_info.value.code, captured.out, captured.err)


def conv_model(batch: int | str = 1, height: int | str = SHAPE[2]) -> onnx.ModelProto:
    """conv 3x3 (6 channels) -> relu -> max pool -> mean over the plane -> fully connected, 5 results."""
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(0, 0.3, (6, 3, 3, 3)),
        "b": rng.normal(0, 0.1, 6),
        "fc": rng.normal(0, 0.5, (6, 5)),
    }
    nodes = [
        helper.make_node("Conv", [INPUT, "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "fc"], ["y"], "dense"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [batch, 3, height, SHAPE[3]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mixed_model() -> onnx.ModelProto:
    """An operator that stays on the CPU (CumSum) between two that run on the NPU."""
    nodes = [
        helper.make_node("Abs", [INPUT], ["a"], "first"),
        helper.make_node("CumSum", ["a", "axis"], ["c"], "running_sum"),
        helper.make_node("Add", ["c", "a"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16])],
        [numpy_helper.from_array(np.array(2, np.int64), "axis")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def cpu_model() -> onnx.ModelProto:
    """Nothing that runs on the NPU."""
    graph = helper.make_graph(
        [helper.make_node("IsNaN", [INPUT], ["y"], "check")],
        "cpu",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [2, 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def samples(count: int = 4, seed: int = 0) -> np.ndarray:
    """Inputs of ``conv_model``; one channel is an outlier, ten times the others."""
    values = np.random.default_rng(seed).normal(0, 1, (count, *SHAPE[1:])).astype(np.float32)
    values[:, 1] *= 10
    return values


@dataclass(frozen=True)
class Workspace:
    """Files that the tests of the command line share."""

    folder: Path
    model: Path
    calibration: Path
    inputs: Path
    int8: Path
    bf16: Path


def make_workspace(folder: Path) -> Workspace:
    """Write model and data, and compile the model in both precisions through the command line."""
    space = Workspace(
        folder,
        *(folder / name for name in ("tiny.onnx", "calib.npz", "in.npz", "int8.torq", "bf16.torq")),
    )
    onnx.save(conv_model(), space.model)
    np.savez(space.calibration, **{INPUT: samples()})
    np.savez(space.inputs, **{INPUT: samples(1, seed=9)})
    for target, extra in ((space.int8, ["--calib", str(space.calibration)]), (space.bf16, [])):
        with pytest.raises(SystemExit) as exit_info:
            main(["compile", str(space.model), "-o", str(target), *extra, "--json"])
        assert exit_info.value.code == 0
    return space
