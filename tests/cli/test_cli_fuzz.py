"""Mutated models through the whole compiler: refused by name, or compiled to something that runs."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.cli.tools import INPUT, conv_model, samples, torq

DEFECTS = {"InternalError", "VerificationError", "KernelError"}
OPERATORS = (
    "Relu", "Add", "Mul", "Sigmoid", "Softmax", "Exp", "Log", "ReduceMean", "Transpose", "Sqrt", "Div", "Concat",
    "Flatten", "Pow", "Cast", "ArgMax", "Tanh", "Gelu", "HardSwish",
)  # fmt: skip
INTEGERS = (-1, 0, 1, 2, 3, 7, 1 << 31, 1 << 62, -(1 << 62))
FLOATS = (np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-40, 0.0)


def _flip(model: onnx.ModelProto, rng: random.Random) -> bytes:
    data = bytearray(model.SerializeToString())
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _attribute(model: onnx.ModelProto, rng: random.Random) -> bytes:
    nodes = [node for node in model.graph.node if node.attribute]
    values = rng.choice(rng.choice(nodes).attribute).ints
    values[rng.randrange(len(values))] = rng.choice(INTEGERS)
    return model.SerializeToString()


def _weight(model: onnx.ModelProto, rng: random.Random) -> bytes:
    tensor = rng.choice(model.graph.initializer)
    value = numpy_helper.to_array(tensor).copy()
    value.flat[rng.randrange(value.size)] = rng.choice(FLOATS)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return model.SerializeToString()


def _operator(model: onnx.ModelProto, rng: random.Random) -> bytes:
    rng.choice(model.graph.node).op_type = rng.choice(OPERATORS)
    return model.SerializeToString()


def _dimension(model: onnx.ModelProto, rng: random.Random) -> bytes:
    rng.choice(model.graph.input[0].type.tensor_type.shape.dim).dim_value = rng.choice((0, 1, 2, 5, 17, 1000))
    return model.SerializeToString()


def _edge(model: onnx.ModelProto, rng: random.Random) -> bytes:
    node = rng.choice(model.graph.node)
    names = [INPUT, *(t.name for t in model.graph.initializer), *(n.output[0] for n in model.graph.node)]
    node.input[rng.randrange(len(node.input))] = rng.choice(names)
    return model.SerializeToString()


MUTATIONS = (_flip, _attribute, _weight, _operator, _dimension, _edge)


def _fuzz(seed: int, count: int, folder, capsys) -> Counter:
    rng = random.Random(seed)
    model, container, data, output = (folder / name for name in ("m.onnx", "m.torq", "i.npz", "o.npz"))
    np.savez(folder / "c.npz", **{INPUT: samples()})
    calibrated = ["--calib", folder / "c.npz"]
    outcomes: Counter = Counter()
    for number in range(count):
        model.write_bytes(rng.choice(MUTATIONS)(conv_model(), rng))
        extra = rng.choice(([], calibrated, [*calibrated, "--precision", "int16"]))
        result = torq(capsys, "compile", model, "-o", container, *extra, "--json")
        error = result.json.get("error", "ok")
        outcomes[error] += 1
        assert error not in DEFECTS, (seed, number, result.out)
        if error == "ok":
            shape = result.json["inputs"][0]["shape"]
            np.savez(data, **{INPUT: np.random.default_rng(0).normal(size=shape).astype(np.float32)})
            run = torq(capsys, "run", container, "--input", data, "--output", output, "--json")
            assert run.json.get("error", "ok") not in DEFECTS, (seed, number, run.out)
    return outcomes


def test_mutated_models(tmp_path, capsys):
    outcomes = _fuzz(0, 60, tmp_path, capsys)
    assert outcomes["ok"] > 10 and outcomes["ModelFileError"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_mutated_models(seed, tmp_path, capsys):
    _fuzz(seed, 250, tmp_path, capsys)
