"""Values that a careful reader does not expect, and edits of plain nested data with them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

Rng = np.random.Generator

INTEGERS = (-(2**63), -(2**31), -17, -1, 0, 1, 2, 3, 255, 65535, 2**24, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
VALUES: tuple[Any, ...] = (
    *INTEGERS,
    10**40,
    0.5,
    -0.0,
    1e308,
    True,
    None,
    "",
    "0",
    "int8",
    "\u0000",
    "a" * 5000,
    "../../etc/passwd",
    [],
    {},
    [1],
    {"a": 1},
    [[[]]],
)


def pick(rng: Rng, items: Any) -> Any:
    """One of some items."""
    items = list(items)
    return items[int(rng.integers(len(items)))]


def edited(data: Any, rng: Rng) -> Any:
    """A copy of nested dicts and lists with one to three places changed."""
    data = copy.deepcopy(data)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(data))
        if places:
            _edit(*pick(rng, places), rng)
    return data


def _places(data: Any) -> Any:
    """(container, key) of every value, the outer ones first."""
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield data, key
        yield from _places(data[key])


def _edit(container: Any, key: Any, rng: Rng) -> None:
    kind = rng.integers(6)
    old = container[key]
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[pick(rng, (*map(str, container), "unknown", ""))] = container.pop(key)
    elif kind == 1:
        container.insert(int(rng.integers(len(container))), copy.deepcopy(old))
    elif kind == 2:
        other = pick(rng, container if isinstance(container, dict) else range(len(container)))
        container[key], container[other] = container[other], container[key]
    elif kind in (3, 4) and isinstance(old, int) and not isinstance(old, bool):
        container[key] = old + int(pick(rng, (-4096, -64, -8, -1, 1, 2, 8, 64, 4096, -old, old)))
    else:
        container[key] = copy.deepcopy(pick(rng, VALUES))
