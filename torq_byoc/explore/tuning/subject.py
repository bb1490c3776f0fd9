"""What the tuner knows of a graph: its nodes, which can be fused, which tensors may stay in LRAM and for how long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from types import MappingProxyType

from torq_byoc.kernels.graph import ALIAS_OPS, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.fusion.segment_spaces import SegmentSpaces
from torq_byoc.schedules.node_model import shared_models
from torq_byoc.schedules.residency import Storage, storages
from torq_byoc.schedules.signature import signature

REACH = 3
"""Nodes on either side of a boundary that are tried when it is asked whether any group could span it."""


class Subject:
    """A graph on a machine.

    Args:
        graph: the graph.
        config: the machine.
        slices: how many a node may use, by name; all of them where it is not named.
    """

    def __init__(self, graph: OpGraph, config: NpuConfig, slices: Mapping[str, int] = MappingProxyType({})) -> None:
        self.graph, self.config, self.slices = graph, config, slices
        self.nodes = [node for node in graph.nodes if node.op not in ALIAS_OPS]
        self.position = {node.name: index for index, node in enumerate(self.nodes)}
        self.models = shared_models(graph, self.nodes, config, slices)
        self.signatures: list[Hashable] = [
            (signature(graph, node), self.models[node.name].config.slices) for node in self.nodes
        ]
        self.spaces = SegmentSpaces(graph, self.nodes, self.models, config, CostWeights())

    @cached_property
    def storages(self) -> tuple[Storage, ...]:
        """Tensors, with their aliases, that may stay in LRAM."""
        return tuple(storages(self.graph, self.nodes, self.models, self.config.lram_word))

    @cached_property
    def spannable(self) -> tuple[bool, ...]:
        """For every node but the last, whether some group could hold it and the next one."""
        count = len(self.nodes)
        return tuple(
            any(
                self.spaces.space(first, last) is not None
                for first in range(max(0, index - REACH), index + 1)
                for last in range(index + 1, min(count, index + 2 + REACH))
            )
            for index in range(count - 1)
        )

    def split_runs(self, joined: Mapping[int, bool]) -> list[tuple[int, int]]:
        """Groups (first, last) of a choice of boundaries; runs that cannot be fused are divided where they can.

        Args:
            joined: for boundaries (the index of the node before), whether both sides belong together.
        """
        runs, first = [], 0
        while first < len(self.nodes):
            end = first
            while joined.get(end, False):
                end += 1
            last = next((last for last in range(end, first, -1) if self.spaces.space(first, last)), first)
            if last > first:
                runs.append((first, last))
            first = last + 1
        return runs

    def best_group(self, first: int, last: int, resident: Mapping[str, bool]) -> GroupChoice | None:
        """The cost model's decision for a group; None when it does not fit.

        Args:
            first, last: its ends.
            resident: storage name -> whether it lies in LRAM.
        """
        space = self.spaces.space(first, last)
        if space is None:
            return None
        beside = [
            storage
            for storage in self.storages
            if resident.get(storage.name)
            and storage.name not in space.segment.kept
            and storage.first <= last
            and first <= storage.last
        ]
        tensors = space.segment.sources | space.segment.outputs
        available = self.config.lram_usable - sum(storage.nbytes for storage in beside)
        return space.best(available, frozenset(n for storage in beside for n in storage.tensors if n in tensors))
