"""A few neighbouring operators of a model as a model of its own.

Quantizations belong to the tensors: what an operator reads is quantized and dequantized inside the cut as it was in the
model, and so is what it gives, so that scales and zero points are the model's own.  Only other operators count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from torq_byoc.errors import AccuracyError
from torq_byoc.frontend.graph import constant_tensors, producers, readers

MOST_OPERATORS = 3
_QUANTIZATIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, eq=False)
class Window:
    """Operators of a model, by name, in order; and the model that they make.

    Attributes:
        inputs: of the cut, by the names that the tensors have in the model: who reads them gets what they stand for.
        values: for every input the tensor of the model whose values it is to be fed; for one that is quantized first,
            what its codes stand for.
    """

    nodes: tuple[str, ...]
    model: onnx.ModelProto
    values: dict[str, str]


class Cutter:
    """Cuts windows out of one model.

    Args:
        model: every node named; shapes static.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        graph = self._model.graph
        self._makers, self._readers = producers(graph), readers(graph)
        self._constants = constant_tensors(graph)
        self._kinds = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self._order = {id(node): position for position, node in enumerate(graph.node)}

    def windows(self, node: str) -> Iterator[Window]:
        """Cuts around a node, smaller ones first: its layer, then with the layer before and the one behind."""
        core = self._layer(self._named(node))
        before = [self._layer(maker) for name in self._sources(core) if (maker := self._operator_behind(name))]
        behind = [self._layer_of_reader(reader) for name in core[-1].output for reader in self.readers_of(name)]
        candidates = [core, *([*one, *core] for one in before), *([*core, *one] for one in behind)]
        candidates += [[*one, *core, *other] for one in before for other in behind]
        seen = set()
        for nodes in candidates:
            chosen = sorted({id(one): one for one in nodes}.values(), key=lambda one: self._order[id(one)])
            names = tuple(one.name for one in chosen)
            if len(chosen) <= MOST_OPERATORS and names not in seen:
                seen.add(names)
                yield self._cut(chosen)

    def _named(self, name: str) -> onnx.NodeProto:
        node = next((node for node in self._model.graph.node if node.name == name), None)
        if node is None:
            raise AccuracyError(
                "there is no such layer to cut out", where=name, why="the model has no node of that name"
            )
        return node

    def _layer(self, last: onnx.NodeProto) -> list[onnx.NodeProto]:
        """An operator with those before it whose results are stored nowhere, at most three."""
        found = [last]
        if not any(node.op_type in _QUANTIZATIONS for node in self._model.graph.node):
            return found
        while len(found) < MOST_OPERATORS:
            inner = [self._makers[name] for name in found[0].input if name in self._makers]
            inner = [node for node in inner if node.op_type not in _QUANTIZATIONS]
            if len(inner) != 1 or len(self._readers.get(inner[0].output[0], ())) != 1:
                break
            found.insert(0, inner[0])
        return found

    def _layer_of_reader(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """An operator with those behind it up to the next stored result."""
        found = [node]
        while len(found) < MOST_OPERATORS:
            following = self._readers.get(found[-1].output[0], [])
            if len(following) != 1 or following[0].op_type in _QUANTIZATIONS:
                break
            found.append(following[0])
        return found

    def _sources(self, nodes: Sequence[onnx.NodeProto]) -> list[str]:
        """Tensors that operators read from elsewhere."""
        own = {name for node in nodes for name in node.output}
        names = dict.fromkeys(name for node in nodes for name in node.input if name and name not in own)
        return [name for name in names if not self._is_constant(name)]

    def _is_constant(self, name: str) -> bool:
        """Whether a tensor is known: a constant, or dequantized from one."""
        maker = self._makers.get(name)
        if name in self._constants:
            return True
        return maker is not None and maker.op_type in _QUANTIZATIONS and self._is_constant(maker.input[0])

    def _operator_behind(self, name: str) -> onnx.NodeProto | None:
        """The operator whose result a tensor is, under any quantization."""
        maker = self._makers.get(name)
        while maker is not None and maker.op_type in _QUANTIZATIONS:
            maker = self._makers.get(maker.input[0])
        return maker

    def readers_of(self, name: str) -> Iterator[onnx.NodeProto]:
        """Operators that read a tensor, under any quantization."""
        waiting = [name] if name else []
        while waiting:
            for reader in self._readers.get(waiting.pop(), []):
                if reader.op_type in _QUANTIZATIONS:
                    waiting += reader.output
                else:
                    yield reader

    def _cut(self, nodes: Sequence[onnx.NodeProto]) -> Window:
        own = {name for node in nodes for name in node.output if name}
        chosen = {id(node): node for node in nodes}
        inputs: dict[str, str] = {}
        for name in {name: None for node in nodes for name in node.input if name and name not in own}:
            self._take_source(name, own, chosen, inputs)
        outputs = [self._take_result(name, chosen) for node in nodes for name in node.output if name]
        ends = [name for name in outputs if name and not self._is_read_by(name, chosen)]
        return Window(tuple(node.name for node in nodes), self._model_of(chosen, inputs, ends), inputs)

    def _take_source(self, name: str, own: set[str], chosen: dict[int, onnx.NodeProto], inputs: dict[str, str]) -> None:
        """Take in what stands before an operand: the dequantization of a constant, or a quantization and its end."""
        maker = self._makers.get(name)
        if maker is None or maker.op_type != "DequantizeLinear":
            if name not in self._constants:
                inputs[name] = name
            return
        chosen[id(maker)] = maker
        quantize = self._makers.get(maker.input[0])
        if quantize is None or quantize.op_type != "QuantizeLinear":
            if maker.input[0] not in self._constants:
                inputs[maker.input[0]] = maker.input[0]
            return
        chosen[id(quantize)] = quantize
        if quantize.input[0] not in own and not self._is_constant(quantize.input[0]):
            inputs[quantize.input[0]] = name

    def _take_result(self, name: str, chosen: dict[int, onnx.NodeProto]) -> str:
        """Take in the quantization of a result and one dequantization of that; what the result is called then."""
        quantize = next((node for node in self._readers.get(name, []) if node.op_type == "QuantizeLinear"), None)
        if quantize is None:
            return name
        chosen[id(quantize)] = quantize
        readers_ = [n for n in self._readers.get(quantize.output[0], []) if n.op_type == "DequantizeLinear"]
        if not readers_:
            return quantize.output[0]
        inside = next((node for node in readers_ if id(node) in chosen), readers_[0])
        chosen[id(inside)] = inside
        return inside.output[0]

    def _is_read_by(self, name: str, chosen: dict[int, onnx.NodeProto]) -> bool:
        return any(name in node.input for node in chosen.values())

    def _model_of(
        self, chosen: dict[int, onnx.NodeProto], inputs: dict[str, str], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        nodes = sorted(chosen.values(), key=lambda node: self._order[id(node)])
        read = dict.fromkeys(name for node in nodes for name in node.input)
        graph = helper.make_graph(
            nodes,
            "cut",
            [self._kinds[name] for name in inputs],
            [self._kinds[name] for name in dict.fromkeys(outputs)],
            [self._constants[name] for name in read if name in self._constants],
        )
        model = helper.make_model(graph, opset_imports=list(self._model.opset_import))
        model.ir_version = self._model.ir_version
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
