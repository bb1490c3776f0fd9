"""Keys of what a tuning record is about: graphs and layers that cost the same share one, whatever they are called."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace

from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.timing import Profile
from torq_byoc.schedules.record import DecisionRecord
from torq_byoc.schedules.signature import exact_signature, freeze


@dataclass(frozen=True, order=True)
class Setting:
    """What beside graph and machine decides which schedule is the best: a record holds for its own setting alone.

    Attributes:
        profile: timing profile that judges.
        disabled_passes: torq_hl passes left out, sorted.
    """

    profile: str = "reference"
    disabled_passes: tuple[str, ...] = ()

    @classmethod
    def of(cls, profile: str, disabled_passes: Collection[str]) -> Setting:
        """The setting of a request, which may name passes in any order and twice.

        Raises:
            ScheduleError: there is no such profile.
        """
        return cls(Profile.named(profile).value, tuple(sorted(set(disabled_passes))))

    def __str__(self) -> str:
        without = f" without {', '.join(self.disabled_passes)}" if self.disabled_passes else ""
        return f"profile {self.profile}{without}"


def graph_key(graph: OpGraph) -> str:
    """SHA-256, in hex, of the nodes' signatures in order, of what each reads, and of what the graph gives out.

    Values of weights and names are left out: they decide nothing about tiles, LRAM and groups.
    """
    places: dict[str, tuple[str, int]] = {name: ("input", index) for index, name in enumerate(graph.inputs)}
    places |= {node.output: ("node", index) for index, node in enumerate(graph.nodes)}
    for name in (name for node in graph.nodes for name in node.inputs):
        places.setdefault(name, ("constant", len(places)))
    wiring = tuple(tuple(places[name] for name in node.inputs) for node in graph.nodes)
    outputs = tuple(places[name] for name in graph.outputs)
    return _digest((tuple(exact_signature(graph, node) for node in graph.nodes), wiring, outputs))


def layer_key(graph: OpGraph, node: Node, resident: Mapping[str, bool]) -> str:
    """SHA-256, in hex, of a node's signature and of which of its operands lie in LRAM as a whole.

    Args:
        graph: the graph.
        node: one of its nodes.
        resident: as in a complete ``DecisionRecord``.
    """
    operands = tuple(resident.get(name, False) for name in (*node.inputs, node.output))
    return _digest((exact_signature(graph, node), operands))


def numbered(record: DecisionRecord, graph: OpGraph) -> DecisionRecord:
    """A record of a graph with nodes, and the tensors they make, named by their position: "0", "1", ..."""
    nodes = {node.name: str(index) for index, node in enumerate(graph.nodes)}
    tensors = {node.output: str(index) for index, node in enumerate(graph.nodes)}
    return _renamed(record, nodes.__getitem__, tensors.__getitem__)


def named(record: DecisionRecord, graph: OpGraph) -> DecisionRecord:
    """The reverse of ``numbered``, for any graph of the same key.

    Raises:
        ScheduleError: a number that no node of the graph has.
    """

    def node(number: str) -> Node:
        position = int(number) if number.isascii() and number.isdigit() else len(graph.nodes)
        if position >= len(graph.nodes):
            raise ScheduleError(
                "a tuning record is not about this graph",
                where=f"node {number!r}",
                why=f"the graph's nodes are numbered 0 to {len(graph.nodes) - 1}",
                remedy="tune the model again, or compile without the records",
            )
        return graph.nodes[position]

    return _renamed(record, lambda number: node(number).name, lambda number: node(number).output)


def _renamed(record: DecisionRecord, node: Callable[[str], str], tensor: Callable[[str], str]) -> DecisionRecord:
    groups = record.groups
    if groups is not None:
        groups = tuple(replace(group, nodes=tuple(map(node, group.nodes))) for group in groups)
    return DecisionRecord(
        {node(name): override for name, override in record.nodes.items()},
        {tensor(name): value for name, value in record.resident.items()},
        groups,
        {node(name): count for name, count in record.slices.items()},
    )


def _digest(content: Hashable) -> str:
    return hashlib.sha256(repr(freeze(content)).encode()).hexdigest()
