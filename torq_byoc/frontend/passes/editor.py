"""A model under simplification: look-ups that every pass needs, and edits that keep the graph valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torq_byoc.frontend.graph import all_graphs, array_of, constant_tensors, default_opset, producers, readers
from torq_byoc.frontend.shapes import Shape, element_types, known_shapes


class GraphEditor:
    """One pass's view of a model.

    The look-ups are computed once and describe the graph as it was when the pass began; a pass that changes
    what it later looks up starts a new editor (the pipeline does so between passes).
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.graph = model.graph
        self.opset = default_opset(model)
        self.constants = constant_tensors(self.graph)
        # Edits are keyed by a node's identity, which lasts only as long as somebody holds the node.
        self._held = list(self.graph.node)
        self.producers = producers(self.graph)
        self.readers = readers(self.graph)
        self.output_names = {v.name for v in self.graph.output}
        self.input_names = {v.name for v in self.graph.input}
        self._replaced: dict[str, str] = {}
        self._removed: set[int] = set()
        self._inserted: dict[int, list[onnx.NodeProto]] = {}

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Tensor name -> inferred shape (None: unknown dimension)."""
        return known_shapes(self.model)

    @cached_property
    def types(self) -> dict[str, int]:
        """Tensor name -> ONNX element type."""
        return element_types(self.model)

    @cached_property
    def _names(self) -> set[str]:
        names: set[str] = set()
        for graph in all_graphs(self.graph):
            names.update(v.name for v in [*graph.input, *graph.output, *graph.value_info])
            names.update(t.name for t in graph.initializer)
            for node in graph.node:
                names.update((node.name, *node.input, *node.output))
        return names

    def array(self, name: str) -> np.ndarray | None:
        """The value of a tensor, when it is stored in the model."""
        return array_of(self.constants, name)

    def static_shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor when every dimension is known."""
        shape = self.shapes.get(name)
        return None if shape is None or None in shape else tuple(n for n in shape if n is not None)

    def sole_reader(self, name: str) -> onnx.NodeProto | None:
        """The node that reads a tensor when there is exactly one, it reads it once, and it is no graph output."""
        users = self.readers.get(name, [])
        if len(users) != 1 or name in self.output_names or list(users[0].input).count(name) != 1:
            return None
        return users[0]

    def fresh_name(self, base: str) -> str:
        """A tensor or node name that the model does not use yet."""
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def add_constant(self, array: np.ndarray, base: str) -> str:
        """Store a tensor; returns its name."""
        tensor = numpy_helper.from_array(np.asarray(array, order="C"), self.fresh_name(base))
        self.graph.initializer.append(tensor)
        self.constants[tensor.name] = tensor
        return tensor.name

    def store_result(self, name: str, value: np.ndarray, node: onnx.NodeProto) -> None:
        """Store what a node computes; a graph output gets an Identity of it, since it must come from a node."""
        array = np.asarray(value, order="C")
        if name not in self.output_names:
            tensor = numpy_helper.from_array(array, name)
            self.graph.initializer.append(tensor)
            self.constants[name] = tensor
        else:
            copy = self.add_constant(array, f"{name}_value")
            self.insert_before(node, [self.node("Identity", [copy], name, node)])
            self._replaced[name] = copy  # for its readers; the output keeps its name

    def node(
        self, op_type: str, inputs: Sequence[str], output: str, like: onnx.NodeProto, **attributes: Any
    ) -> onnx.NodeProto:
        """A new node named after the one that it comes from."""
        return helper.make_node(op_type, list(inputs), [output], name=self.fresh_name(like.name), **attributes)

    def insert_before(self, place: onnx.NodeProto, nodes: Iterable[onnx.NodeProto]) -> None:
        """Put nodes just before another one."""
        self._inserted.setdefault(id(place), []).extend(nodes)

    def remove(self, node: onnx.NodeProto) -> None:
        """Drop a node; the caller sees to its readers."""
        self._removed.add(id(node))

    def replace(self, old: onnx.NodeProto, new: Sequence[onnx.NodeProto]) -> None:
        """Put nodes in the place of one that is dropped; the last one keeps the old node's name."""
        if new:
            new[-1].name = old.name
        self.insert_before(old, new)
        self.remove(old)

    def bypass(self, node: onnx.NodeProto, source: str) -> bool:
        """Drop a node whose first output equals ``source``; False when a graph output forbids it.

        A graph output keeps its name: then the producer of ``source`` is renamed, which needs a producer
        whose output is not a graph output itself.
        """
        name, source = node.output[0], self.current(source)
        if name in self.output_names:
            producer = self.producers.get(source)
            captured = any(source not in user.input for user in self.readers.get(source, []))
            if producer is None or source in self.output_names or captured or id(producer) in self._removed:
                return False
            index = list(producer.output).index(source)
            producer.output[index] = name
            self.producers[name] = producer
            name, source = source, name
        elif any(name not in user.input for user in self.readers.get(name, [])):
            return False  # read inside a sub-graph
        self._replaced[name] = source
        self.remove(node)
        return True

    def current(self, name: str) -> str:
        """The name that a tensor goes by after the replacements so far."""
        while name in self._replaced:
            name = self._replaced[name]
        return name

    @property
    def removed_count(self) -> int:
        """Nodes dropped so far."""
        return len(self._removed)

    def commit(self) -> None:
        """Write the edits into the graph."""
        if not (self._replaced or self._removed or self._inserted):
            return
        nodes: list[onnx.NodeProto] = []
        for node in self.graph.node:
            nodes.extend(self._inserted.get(id(node), []))
            if id(node) not in self._removed:
                nodes.append(node)
        kept = []
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            for i, name in enumerate(copy.input):
                copy.input[i] = self.current(name)
            kept.append(copy)
        del self.graph.node[:]
        self.graph.node.extend(kept)
