"""LSTM and GRU over a fixed number of steps are written out in matrix products and element-wise operators.

Before: ``y, h, c = LSTM(x: 1xBxI, w, r, b, "", h0, c0)``
After:  ``a = Gemm(x, w', b) + MatMul(h0, r'); i, o, f = Split(Sigmoid(a[:3H])); g = Tanh(a[3H:])``
        ``c = f * c0 + i * g; h = o * Tanh(c)``, and the same for each further step

The input's product is computed for all steps at once.  Left alone, and then reported as unsupported: peepholes,
other activations, clipping, sequence lengths, batch-first layout, weights from run time, more than MAX_STEPS steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor

MAX_STEPS = 128
"""A step becomes about ten nodes; a longer sequence would make a program larger than its weights."""

_DEFAULTS = {"LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"]}
_GATES = {"LSTM": 4, "GRU": 3}


def unroll_recurrent(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    changes = 0
    for node in editor.graph.node:
        if node.op_type in _GATES and _can_unroll(node, editor):
            _Unroller(node, editor).run()
            changes += 1
    return changes


def _can_unroll(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    shape = editor.static_shape(node.input[0])
    names = list(node.input) + [""] * 8
    weights = [editor.array(name) for name in names[1:4] if name]
    direction = attribute(node, "direction", b"forward")
    directions = 2 if direction == b"bidirectional" else 1
    return (
        shape is not None
        and len(shape) == 3
        and 0 < shape[0] <= MAX_STEPS
        and all(w is not None and w.dtype == np.float32 for w in weights)
        and not names[4]
        and not (node.op_type == "LSTM" and names[7])
        and attribute(node, "activations", _DEFAULTS[node.op_type] * directions) == _DEFAULTS[node.op_type] * directions
        and not any(a.name in ("clip", "layout", "input_forget") and a.f + a.i for a in node.attribute)
    )


@dataclass
class _Unroller:
    """Builds the nodes for one recurrent layer; a state of None is all zeros."""

    node: onnx.NodeProto
    editor: GraphEditor
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = list(self.node.input) + [""] * 8
        self.x, self.initial = names[0], names[5:7] if self.node.op_type == "LSTM" else names[5:6]
        self.w, self.r = (self._weight(name) for name in names[1:3])
        self.steps, self.batch, self.width = self.editor.static_shape(self.x) or (0, 0, 0)
        self.directions, _, self.hidden = self.r.shape
        bias = self.editor.array(names[3])
        gates = _GATES[self.node.op_type] * self.hidden
        self.bias = np.zeros((self.directions, 2 * gates), np.float32) if bias is None else bias

    def _weight(self, name: str) -> np.ndarray:
        value = self.editor.array(name)
        assert value is not None  # _can_unroll has looked
        return value

    def run(self) -> None:
        direction = attribute(self.node, "direction", b"forward")
        sequences, finals = [], []
        for index in range(self.directions):
            backwards = direction == b"reverse" or index == 1
            outputs, state = self._direction(index, backwards)
            sequences.append(outputs[::-1] if backwards else outputs)
            finals.append(state)
        self._outputs(sequences, finals)
        self.editor.replace(self.node, self.nodes)

    def _direction(self, index: int, backwards: bool) -> tuple[list[str], list[str]]:
        """Hidden states in the order they are computed, and the last state."""
        gates = _GATES[self.node.op_type] * self.hidden
        from_input, from_state = self.bias[index, :gates], self.bias[index, gates:]
        if self.node.op_type == "LSTM":
            from_input = from_input + from_state
        flat = self._reshape(self.x, (self.steps * self.batch, self.width))
        product = self.emit("Gemm", [flat, self.constant(self.w[index].T), self.constant(from_input)])
        inputs = self._split(product, [self.batch] * self.steps, axis=0)
        state: list[str | None] = [self._initial(name, index) for name in self.initial]
        step = self._lstm_step if self.node.op_type == "LSTM" else self._gru_step
        hidden = []
        for gate in inputs[::-1] if backwards else inputs:
            state = step(gate, state, self.r[index], from_state)
            hidden.append(str(state[0]))
        return hidden, [str(s) for s in state]

    def _lstm_step(
        self, gates: str, state: Sequence[str | None], recurrent: np.ndarray, bias: np.ndarray
    ) -> list[str | None]:
        hidden, cell = state
        if hidden is not None:
            gates = self.emit("Add", [gates, self.emit("MatMul", [hidden, self.constant(recurrent.T)])])
        size = self.hidden
        sigmoids, candidate = self._split(gates, [3 * size, size], axis=1)
        enter, leave, keep = self._split(self.emit("Sigmoid", [sigmoids]), [size] * 3, axis=1)
        fresh = self.emit("Mul", [enter, self.emit("Tanh", [candidate])])
        cell = fresh if cell is None else self.emit("Add", [self.emit("Mul", [keep, cell]), fresh])
        return [self.emit("Mul", [leave, self.emit("Tanh", [cell])]), cell]

    def _gru_step(
        self, gates: str, state: Sequence[str | None], recurrent: np.ndarray, bias: np.ndarray
    ) -> list[str | None]:
        size = self.hidden
        hidden = state[0] or self.constant(np.zeros((self.batch, size), np.float32))
        first, second = recurrent[: 2 * size].T, recurrent[2 * size :].T
        from_x, candidate = self._split(gates, [2 * size, size], axis=1)
        both = self.emit("Gemm", [hidden, self.constant(first), self.constant(bias[: 2 * size])])
        update, reset = self._split(self.emit("Sigmoid", [self.emit("Add", [from_x, both])]), [size, size], axis=1)
        offset = self.constant(bias[2 * size :])
        if attribute(self.node, "linear_before_reset", 0):
            recalled = self.emit("Mul", [reset, self.emit("Gemm", [hidden, self.constant(second), offset])])
        else:
            recalled = self.emit("Gemm", [self.emit("Mul", [reset, hidden]), self.constant(second), offset])
        fresh = self.emit("Tanh", [self.emit("Add", [candidate, recalled])])
        # (1 - z) * fresh + z * hidden, with one product less
        moved = self.emit("Mul", [update, self.emit("Sub", [hidden, fresh])])
        return [self.emit("Add", [fresh, moved])]

    def _initial(self, name: str, index: int) -> str | None:
        value = self.editor.array(name)
        if not name or (value is not None and not value.any()):
            return None
        part = self._split(name, [1] * self.directions, axis=0)[index]
        return self._reshape(part, (self.batch, self.hidden))

    def _outputs(self, sequences: list[list[str]], finals: list[list[str]]) -> None:
        names = list(self.node.output) + [""] * 3
        if names[0]:
            shape = (1, 1, self.batch, self.hidden)
            rows = [
                self._concat([self._reshape(direction[t], shape) for direction in sequences], axis=1)
                for t in range(self.steps)
            ]
            self._concat(rows, axis=0, output=names[0])
        for position, name in enumerate(names[1:3]):
            if name and position < len(finals[0]):
                parts = [self._reshape(final[position], (1, self.batch, self.hidden)) for final in finals]
                self._concat(parts, axis=0, output=name)

    def emit(self, op_type: str, inputs: list[str], output: str | None = None, **attributes: int) -> str:
        result = output or self.editor.fresh_name(f"{self.node.name}_{op_type.lower()}")
        self.nodes.append(self.editor.node(op_type, inputs, result, self.node, **attributes))
        return result

    def constant(self, array: np.ndarray) -> str:
        return self.editor.add_constant(array, f"{self.node.name}_constant")

    def _reshape(self, name: str, shape: Sequence[int]) -> str:
        return self.emit("Reshape", [name, self.constant(np.array(shape, np.int64))])

    def _concat(self, names: list[str], axis: int, output: str | None = None) -> str:
        if len(names) == 1:
            return self.emit("Identity", names, output) if output else names[0]
        return self.emit("Concat", names, output, axis=axis)

    def _split(self, name: str, sizes: list[int], axis: int) -> list[str]:
        if len(sizes) == 1:
            return [name]
        outputs = [self.editor.fresh_name(f"{self.node.name}_part") for _ in sizes]
        by_input = self.editor.opset >= 13
        inputs = [name, self.constant(np.array(sizes, np.int64))] if by_input else [name]
        split = self.editor.node(
            "Split", inputs, outputs[0], self.node, axis=axis, **({} if by_input else {"split": sizes})
        )
        split.output.extend(outputs[1:])
        self.nodes.append(split)
        return outputs
