"""Which tensors stay in LRAM between producer and consumers.

Reshapes and bitcasts move no data: a tensor and its aliases are one storage, planned together.  A storage
may stay resident when it is neither input nor output of the graph and no reader wants it in phase planes.
The planner adds storages one by one, most cycles saved for the bytes and time they occupy first, and keeps
one whenever the estimated time of the nodes it touches does not grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.schedules.node_model import NodeModel


@dataclass(frozen=True)
class Storage:
    """A tensor with its aliases, as one candidate for residency.

    Attributes:
        tensors: names of the tensor and its aliases, in graph order.
        nbytes: bytes it occupies.
        first, last: indices of the producing and of the last reading node among the scheduled nodes.
        readers: number of reads that residency saves.
    """

    tensors: tuple[str, ...]
    nbytes: int
    first: int
    last: int
    readers: int

    @property
    def name(self) -> str:
        """Name of the tensor that is computed."""
        return self.tensors[0]


def streamed_reads(node: Node, model: NodeModel) -> list[str]:
    """Names of the tensors that a node reads as tiles."""
    return [node.inputs[position] for position in model.inputs]


def storages(
    graph: OpGraph,
    nodes: Sequence[Node],
    models: Mapping[str, NodeModel],
    word: int,
) -> list[Storage]:
    """All storages that may be resident.

    Args:
        graph: the graph.
        nodes: the scheduled nodes (aliases left out), in order.
        models: model of each of them, by name.
        word: allocation granularity in bytes.
    """
    roots = graph.storage_roots()
    barred = {roots[name] for name in (*graph.inputs, *graph.outputs, *graph.constants)}
    produced: dict[str, int] = {}
    read: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        model = models[node.name]
        for position, name in enumerate(streamed_reads(node, model)):
            read.setdefault(roots[name], []).append(index)
            if model.layout(position).phases != (1, 1):
                barred.add(roots[name])
        produced[node.output] = index
    names: dict[str, list[str]] = {}
    for name in graph.tensors:
        names.setdefault(roots[name], []).append(name)
    found = []
    for root, index in produced.items():
        if root not in barred and root in read:
            nbytes = -(-graph.tensors[root].nbytes // word) * word
            members = (root, *(name for name in names[root] if name != root))
            found.append(Storage(members, nbytes, index, max(read[root]), len(read[root])))
    return found


class Planner:
    """Chooses resident storages for a chain of nodes.

    Args:
        candidates: storages that may be resident.
        nodes: number of scheduled nodes.
        price: estimated (cycles, bytes) of a node when a set of storages is resident; None when the node
            does not fit then.
        forced: storages that an override fixes, by name.
    """

    def __init__(
        self,
        candidates: list[Storage],
        nodes: int,
        price: Callable[[int, frozenset[str]], tuple[float, float] | None],
        forced: Mapping[str, bool],
    ) -> None:
        self.candidates = candidates
        self.price = price
        self.live: list[set[str]] = [set() for _ in range(nodes)]
        self.chosen: set[str] = set()
        self.forced = forced
        self._bit = {storage.name: 1 << number for number, storage in enumerate(candidates)}
        self._masks = [0] * nodes
        """``live`` as bits."""
        self._known: list[dict[int, tuple[float, float] | None]] = [{} for _ in range(nodes)]

    def run(self, sweeps: int) -> frozenset[str]:
        """Names of the resident storages.

        Args:
            sweeps: rounds of improvement after the greedy choice.
        """
        for storage in self.candidates:
            if self.forced.get(storage.name):
                self._add(storage)
        free = [storage for storage in self.candidates if storage.name not in self.forced]
        for storage in sorted(free, key=self._merit, reverse=True):
            self._try_add(storage)
        for _ in range(sweeps):
            if not any([self._try_swap(storage, free) for storage in free if storage.name not in self.chosen]):
                break
        return frozenset(self.chosen)

    def _merit(self, storage: Storage) -> tuple[float, int]:
        """Transfers saved a byte and node of occupation; earlier first among equals."""
        return ((1 + storage.readers) / (1 + storage.last - storage.first), -storage.first)

    def _span_price(self, first: int, last: int) -> tuple[float, float] | None:
        cycles = nbytes = 0.0
        for index in range(first, last + 1):
            price = self._price(index)
            if price is None:
                return None
            cycles, nbytes = cycles + price[0], nbytes + price[1]
        return cycles, nbytes

    def _price(self, index: int) -> tuple[float, float] | None:
        """The price of a node as things are; asked for once, since the same sets come back in every trial."""
        known, mask = self._known[index], self._masks[index]
        if mask not in known:
            known[mask] = self.price(index, frozenset(self.live[index]))
        return known[mask]

    def _add(self, storage: Storage) -> None:
        self.chosen.add(storage.name)
        for index in range(storage.first, storage.last + 1):
            self.live[index].add(storage.name)
            self._masks[index] |= self._bit[storage.name]

    def _remove(self, storage: Storage) -> None:
        self.chosen.discard(storage.name)
        for index in range(storage.first, storage.last + 1):
            self.live[index].discard(storage.name)
            self._masks[index] &= ~self._bit[storage.name]

    def _try_add(self, storage: Storage) -> bool:
        before = self._span_price(storage.first, storage.last)
        self._add(storage)
        after = self._span_price(storage.first, storage.last)
        if before is None or after is None or after >= before:
            self._remove(storage)
            return False
        return True

    def _try_swap(self, storage: Storage, free: list[Storage]) -> bool:
        """Put one storage in the place of a chosen one that overlaps it, if that is cheaper."""
        rivals = [other for other in free if other.name in self.chosen and _overlap(storage, other)]
        if self._try_add(storage):
            return True
        for other in rivals:
            first, last = min(storage.first, other.first), max(storage.last, other.last)
            before = self._span_price(first, last)
            self._remove(other)
            self._add(storage)
            after = self._span_price(first, last)
            if before is not None and after is not None and after < before:
                return True
            self._remove(storage)
            self._add(other)
        return False


def _overlap(a: Storage, b: Storage) -> bool:
    return a.first <= b.last and b.first <= a.last
