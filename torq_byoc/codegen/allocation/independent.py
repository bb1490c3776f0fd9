"""A problem taken apart into such as do not touch each other, without loss.

Buffers that live through everything can lie at the bottom: what was below them moves up by their size.  What then
falls into parts with no common slot is placed part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torq_byoc.codegen.allocation.request import Request


@dataclass(frozen=True)
class Pile:
    """Buffers placed one on the other from ``base`` on, and parts that stand on them side by side in time.

    Attributes:
        base: offset of the lowest one.
        members: indices of requests that live through the whole pile.
    """

    base: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """Requests (by index) to be placed from ``base`` on; no two of different parts touch."""

    base: int
    members: tuple[int, ...]


def taken_apart(requests: Sequence[Request]) -> tuple[list[Pile], list[Part]]:
    """Piles, whose places are fixed, and parts, which remain to be solved."""
    piles: list[Pile] = []
    parts: list[Part] = []
    waiting = [(0, tuple(range(len(requests))))]
    while waiting:
        base, members = waiting.pop()
        for component in _components(requests, members):
            start = min(requests[i].start for i in component)
            end = max(requests[i].end for i in component)
            through = tuple(i for i in component if requests[i].start == start and requests[i].end == end)
            if not through:
                parts.append(Part(base, component))
                continue
            piles.append(Pile(base, through))
            others = tuple(i for i in component if i not in set(through))
            if others:
                waiting.append((base + sum(requests[i].size for i in through), others))
    return piles, parts


def _components(requests: Sequence[Request], members: Sequence[int]) -> list[tuple[int, ...]]:
    """Members that are connected by overlapping lifetimes."""
    components: list[list[int]] = []
    reach = -1
    for index in sorted(members, key=lambda i: (requests[i].start, i)):
        if not components or requests[index].start > reach:
            components.append([])
            reach = requests[index].end
        components[-1].append(index)
        reach = max(reach, requests[index].end)
    return [tuple(component) for component in components]
