"""Numpy's broadcasting rules for tensor expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def broadcast_element(tensor: Any, index: Sequence[Any]) -> Any:
    """The element of a tensor that broadcasts to an output position; missing leading axes are ignored."""
    rank = len(tensor.shape)
    own = index[len(index) - rank :]
    return tensor(*(0 if int(extent) == 1 else i for extent, i in zip(tensor.shape, own, strict=True)))
