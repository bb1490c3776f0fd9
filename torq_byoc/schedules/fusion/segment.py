"""A run of neighbouring nodes that may become a fused group: what it keeps, takes in and gives out."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Layout, Region
from torq_byoc.schedules.fusion.band_kinds import ConstantLoad
from torq_byoc.schedules.node_model import NodeModel

DENSE = (1, 1)
WRITTEN_PHASES = 2
"""Stride phases that the output writer separates (hardware doc 1.6: an even-odd split)."""


class Carried(msgspec.Struct, frozen=True, eq=False):
    """What a band of a segment computes of every node, in order, and holds of every tensor; None is nothing."""

    outputs: tuple[Region | None, ...]
    held: Mapping[str, Region]


@dataclass(frozen=True)
class Segment:
    """Neighbouring scheduled nodes.

    Attributes:
        nodes: in execution order.
        models: one a node.
        internal: tensors made by one node and read by another one.
        outputs: tensors that are needed outside: graph outputs, or read by other nodes.
        sources: tensors that are read from outside.
        phases: for tensors read in stride phases, which.
        names: for every node the tensors that it reads as tiles, one a position, by the name of whose elements they
            are; what is made inside goes by its maker's output, under whatever type and shape it is read.
        views: the shapes under which the nodes read them.
        shapes: the shape of every tensor that goes by its name.
        end: the segment without its first node, where its nodes read the same tensors by the same names.
    """

    nodes: tuple[Node, ...]
    models: tuple[NodeModel, ...]
    internal: frozenset[str]
    outputs: frozenset[str]
    sources: frozenset[str]
    phases: Mapping[str, tuple[int, int]]
    names: tuple[tuple[str, ...], ...]
    views: tuple[tuple[tuple[int, ...], ...], ...]
    shapes: Mapping[str, tuple[int, ...]]
    end: Segment | None = None

    @cached_property
    def carried(self) -> dict[Hashable, Carried | None]:
        """What ``shared_ends`` knows of its bands, by cut and number; None where they cannot be."""
        return {}

    @cached_property
    def _constant_loads(self) -> dict[tuple[int, Region], tuple[ConstantLoad, ...]]:
        return {}

    def constant_loads(self, position: int, box: Region) -> tuple[ConstantLoad, ...]:
        """What a node needs of its packed constants for a box of its output, its only one of a band."""
        if not self.models[position].packs_constants:
            return ()
        key = (position, box)
        if key not in self._constant_loads:
            parts = enumerate(self.models[position].constant_parts(box))
            loads = tuple(ConstantLoad(position, (position, which), part) for which, part in parts)
            self._constant_loads[key] = loads
        return self._constant_loads[key]

    def delivers(self, position: int) -> bool:
        """Whether every band must deliver a part of what a node makes: it is needed outside, or what is cut."""
        return self.nodes[position].output in self.outputs or position == len(self.nodes) - 1

    @property
    def last(self) -> NodeModel:
        """Model of the node whose output is cut into bands."""
        return self.models[-1]

    @cached_property
    def reshapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The tensors that are read under another shape than they are made in, each with such a shape."""
        pairs = zip(self.names, self.views, strict=True)
        reads = ((name, view) for names, views in pairs for name, view in zip(names, views, strict=True))
        return tuple(dict.fromkeys((name, view) for name, view in reads if view != self.shapes[name]))

    @cached_property
    def passages(self) -> tuple[tuple[int, int, str], ...]:
        """Maker, last reader and name of every internal tensor."""
        return tuple(
            (maker, max(reader for reader, names in enumerate(self.names) if node.output in names), node.output)
            for maker, node in enumerate(self.nodes)
            if node.output in self.internal
        )

    @cached_property
    def joining(self) -> tuple[int, ...]:
        """Nodes that only put together what others of the segment make, one part after the other: each of them can be
        made in its place, of which it has one."""
        found: list[int] = []
        placed: set[str] = set()
        for position, names in enumerate(self.names):
            if self._only_joins(position) and placed.isdisjoint(names):
                found.append(position)
                placed.update(names)
        return tuple(found)

    def _only_joins(self, position: int) -> bool:
        model, names = self.models[position], self.names[position]
        offsets = model.kernel.copied(model.graph, model.node).values()
        if len(offsets) < len(names) or sum(math.prod(self.shapes[name]) for name in names) != math.prod(model.shape):
            return False
        outermost = next((axis for axis, extent in enumerate(model.shape) if extent > 1), 0)
        if any(distance for offset in offsets for axis, distance in enumerate(offset) if axis != outermost):
            return False  # the parts do not lie dense in the whole
        tensors = (self.nodes[position].output, *names)
        return (
            self.internal.issuperset(names)
            and len(set(tensors)) == len(tensors)
            and not self.phases.keys() & {*tensors}
        )

    @cached_property
    def units(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For every node the axes, and the multiples, at which alone its output may be cut into bands: where the node
        may be, and at whole stride phases.  Axes that may be cut anywhere are left out."""
        found = []
        for node, model in zip(self.nodes, self.models, strict=True):
            units = [step or extent for step, extent in zip(model.steps, model.shape, strict=True)]
            if node.output in self.phases:
                units[-2:] = map(math.lcm, units[-2:], self.phases[node.output])
            found.append(tuple((axis, unit) for axis, unit in enumerate(units) if unit > 1))
        return tuple(found)

    @cached_property
    def fed(self) -> tuple[bool, ...]:
        """For every node whether it reads something from outside."""
        return tuple(not self.sources.isdisjoint(names) for names in self.names)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes an element of every tensor that goes by its name."""
        tensors = self.models[0].graph.tensors
        return {name: tensors[name].dtype.size for name in self.shapes}

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """How every held tensor lies: in all of its stride phases where it is made here or has several readers, else
        as its reader wants it."""
        wanted: dict[str, list[Layout]] = {}
        for model, names in zip(self.models, self.names, strict=True):
            for index, name in enumerate(names):
                wanted.setdefault(name, []).append(model.layout(index))
        whole = {name: Layout(self.phases.get(name, DENSE)) for name in self.shapes}
        return whole | {
            name: layouts[0] for name, layouts in wanted.items() if name in self.sources and len(layouts) == 1
        }

    def can_part(self, first: int, last: int) -> bool:
        """Whether these nodes may go through a band part by part: what they pass on to one another is needed by nobody
        else, and readers find the last one's result put together as it is made."""
        name = self.nodes[last].output
        within = all(reader <= last for maker, reader, _ in self.passages if first <= maker < last)
        needed = self.outputs & {node.output for node in self.nodes[first : last + 1]}
        return within and not needed and not self.reshapes and name not in self.phases

    @property
    def kept(self) -> frozenset[str]:
        """Internal tensors that never leave LRAM."""
        return self.internal - self.outputs


class SegmentFinder:
    """Builds segments of one graph.

    Args:
        graph: the graph.
        nodes: its scheduled nodes, in order.
        models: a model for every node name.
    """

    def __init__(self, graph: OpGraph, nodes: Sequence[Node], models: Mapping[str, NodeModel]) -> None:
        self.graph, self.nodes, self.models = graph, nodes, models
        self.roots, self.elements = graph.storage_roots(), graph.element_roots()
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(nodes):
            for name in node.inputs:
                self.readers.setdefault(self.roots[name], []).append(index)
        self.needed = {self.roots[name] for name in graph.outputs}
        self._segments: dict[tuple[int, int], Segment | None] = {}

    def segment(self, first: int, last: int) -> Segment | None:
        """The segment of nodes first..last; None when it cannot run band by band.

        Every node but the last must pass something on inside, tensors inside must be read in one layout (dense where
        their planes are reshaped), and whoever makes a tensor in stride phases must be able to.
        """
        key = (first, last)
        if key not in self._segments:
            self._segments[key] = self._found(first, last)
        return self._segments[key]

    def _found(self, first: int, last: int) -> Segment | None:
        nodes = tuple(self.nodes[first : last + 1])
        made = {node.output: index for index, node in enumerate(nodes)}
        reads = [self._reads(node, made) for node in nodes]
        internal = {name for names in reads for name in names if name in made}
        if any(node.output not in internal for node in nodes[:-1]):
            return None
        outputs = {name for name in made if self._needed_outside(name, first, last)}
        phases = self._phases(nodes, reads)
        if phases is None or not all(
            self._writable(name, self.models[nodes[made[name]].name], outputs, phases) for name in internal
        ):
            return None
        sources = {name for names in reads for name in names if name not in made}
        models = tuple(self.models[node.name] for node in nodes)
        views = tuple(
            tuple(self._view(node, index) for index in range(len(names)))
            for node, names in zip(nodes, reads, strict=True)
        )
        shapes = {name: self.graph.tensors[name].shape for name in (*made, *sources)}
        end = self.segment(first + 1, last) if first < last else None
        if end is not None and list(end.names) != reads[1:]:
            end = None
        return Segment(
            nodes,
            models,
            frozenset(internal),
            frozenset(outputs),
            frozenset(sources),
            phases,
            tuple(reads),
            views,
            shapes,
            end,
        )

    def _reads(self, node: Node, made: Collection[str]) -> tuple[str, ...]:
        """The tensors that a node reads: whose bytes they are where a node of the segment makes these."""
        names = [node.inputs[position] for position in self.models[node.name].inputs]
        return tuple(self.roots[name] if self.roots[name] in made else self.elements[name] for name in names)

    def _view(self, node: Node, index: int) -> tuple[int, ...]:
        return self.graph.tensors[node.inputs[self.models[node.name].inputs[index]]].shape

    def _needed_outside(self, name: str, first: int, last: int) -> bool:
        return name in self.needed or any(not first <= reader <= last for reader in self.readers.get(name, ()))

    def _phases(self, nodes: Collection[Node], reads: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]] | None:
        """Layout of every tensor that is not dense; None when two readers want different ones."""
        wanted: dict[str, tuple[int, int]] = {}
        for node, names in zip(nodes, reads, strict=True):
            for index, name in enumerate(names):
                phases = self.models[node.name].layout(index).phases
                replaned = self._view(node, index)[-2:] != self.graph.tensors[name].shape[-2:]
                if wanted.setdefault(name, phases) != phases or (replaned and phases != DENSE):
                    return None
        return {name: phases for name, phases in wanted.items() if phases != DENSE}

    def _writable(
        self, name: str, maker: NodeModel, outputs: Collection[str], phases: Mapping[str, tuple[int, int]]
    ) -> bool:
        """Whether the maker of an internal tensor can lay it out as its reader wants."""
        if name not in phases:
            return True
        return name not in outputs and maker.kernel.writes_phases and max(phases[name]) <= WRITTEN_PHASES
