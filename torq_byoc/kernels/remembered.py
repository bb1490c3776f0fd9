"""Facts of a node that many tiles ask for: worked out once, and remembered for as long as the graph is there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from torq_byoc.kernels.graph import Node, OpGraph

P = ParamSpec("P")
T = TypeVar("T")


def remembered(find: Callable[Concatenate[OpGraph, Node, P], T]) -> Callable[Concatenate[OpGraph, Node, P], T]:
    """Decorator for a function of a graph, one of its nodes, and further hashable positional arguments.

    What it returns must be immutable and hold no reference to the graph, which would never be freed.  Errors are not
    remembered.
    """
    known: WeakKeyDictionary[OpGraph, dict[Hashable, T]] = WeakKeyDictionary()

    @functools.wraps(find)
    def found(graph: OpGraph, node: Node, *rest: P.args, **named: P.kwargs) -> T:
        facts = known.get(graph)
        if facts is None:
            facts = known[graph] = {}
        key = (node, *rest, *named.items())
        if key not in facts:
            facts[key] = find(graph, node, *rest, **named)
        return facts[key]

    return found
