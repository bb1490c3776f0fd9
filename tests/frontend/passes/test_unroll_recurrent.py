"""Unrolled LSTM and GRU layers against onnxruntime's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.frontend.onnx_tools import assert_same_results, graph_model, node, ops, shared_model
from torq_byoc.frontend import load_model, prepare, to_relax

F32 = np.float32
GATES = {"LSTM": 4, "GRU": 3}


def layer(op, steps=3, direction="forward", bias=True, state="input", opset=17, **attrs):
    """A layer with 4 inputs, 5 hidden units and a batch of 2."""
    rng = np.random.default_rng(2)
    directions, gates = (2 if direction == "bidirectional" else 1), GATES[op] * 5
    constants = {
        "w": rng.standard_normal((directions, gates, 4)).astype(F32),
        "r": rng.standard_normal((directions, gates, 5)).astype(F32),
        "b": rng.standard_normal((directions, 2 * gates)).astype(F32),
    }
    inputs = {"x": [steps, 2, 4]}
    states = {"none": [], "input": ["h0", "c0"], "zeros": ["h0", "c0"]}[state][: 2 if op == "LSTM" else 1]
    for name in states:
        if state == "input":
            inputs[name] = [directions, 2, 5]
        else:
            constants[name] = np.zeros((directions, 2, 5), F32)
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    names = ["x", "w", "r", "b" if bias else "", "", *states]
    recurrent = node(op, names, outputs, "cell", hidden_size=5, direction=direction, **attrs)
    return graph_model([recurrent], inputs, outputs, constants, opset=opset)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("steps", "bias", "state"), [(1, True, "input"), (3, False, "none"), (4, True, "zeros")])
def test_same_results(op, direction, steps, bias, state):
    model = layer(op, steps, direction, bias, state)
    result = prepare(model)
    assert op not in ops(result)
    assert_same_results(model, result, rtol=5e-6)


@pytest.mark.parametrize("linear", [0, 1])
def test_both_forms_of_gru(linear):
    model = layer("GRU", linear_before_reset=linear)
    assert_same_results(model, prepare(model), rtol=5e-6)


def test_old_split_has_its_sizes_as_an_attribute():
    model = layer("LSTM", opset=11)
    assert_same_results(model, prepare(model), rtol=5e-6)


def test_default_activations_may_be_spelled_out():
    model = layer("LSTM", activations=["Sigmoid", "Tanh", "Tanh"])
    assert "LSTM" not in ops(prepare(model))


@pytest.mark.parametrize(
    "attrs", [{"activations": ["HardSigmoid", "Tanh", "Tanh"]}, {"clip": 0.5}, {"input_forget": 1}]
)
def test_unusual_forms_are_left_alone(attrs):
    assert ops(prepare(layer("LSTM", **attrs))) == ["LSTM"]


def test_long_sequences_are_left_alone():
    assert ops(prepare(layer("LSTM", steps=200, state="none"))) == ["LSTM"]


def test_sequence_lengths_are_left_alone():
    model = layer("LSTM", steps=3)
    model.graph.node[0].input[4] = "lens"
    value = TensorProto(data_type=TensorProto.INT32, dims=[2], name="lens", int32_data=[3, 2])
    model.graph.initializer.append(value)
    assert ops(prepare(model)) == ["LSTM"]


def test_trained_model_with_two_layers_imports():
    model = load_model(shared_model("dtln_1_lstm.onnx"))
    result = prepare(model)
    assert "LSTM" not in ops(result)
    assert_same_results(model, result, rtol=5e-6)
    pytest.importorskip("tvm")
    assert to_relax(result)["main"] is not None
