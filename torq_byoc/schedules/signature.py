"""Nodes that cost the same: equal operator, attributes, shapes and types, whatever the names and values."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.rescaling import entry_kinds


def signature(graph: OpGraph, node: Node) -> Hashable:
    """A key that two nodes share only when tiles, LRAM demand and cycles of every decision are the same.

    Arrays enter with their shape and type, not with their values; numbers that results alone depend on, which are
    other ones in nearly every layer of a quantized network, not at all.
    """
    attrs, rescale = kernel_for(node.op).cost_attributes(graph, node), node.rescale
    clips = () if rescale is None else (rescale.clip_min > -math.inf, rescale.clip_max < math.inf)
    return _key(graph, node, attrs, clips)


def exact_signature(graph: OpGraph, node: Node) -> Hashable:
    """A key that two nodes share only when their programs differ in places alone: ``signature`` with all numbers."""
    rescale = node.rescale
    clips = () if rescale is None else (rescale.clip_min, rescale.clip_max)
    fixed = () if rescale is None else (rescale.shift, rescale.zero_point, *map(freeze, clips))
    costs = kernel_for(node.op).cost_attributes(graph, node)
    return _key(graph, node, {**node.attrs, "costs": costs}, fixed)


def _key(graph: OpGraph, node: Node, attrs: Mapping[str, Any], act: tuple[Hashable, ...]) -> Hashable:
    """The key with these attributes, and this of what ACT computes with."""
    operands = tuple((*_tensor(graph, name), name in graph.constants) for name in node.inputs)
    repeated = tuple(node.inputs.index(name) for name in node.inputs)
    return (node.op, freeze(attrs), operands, repeated, _tensor(graph, node.output), _rescale(node.rescale, act))


def freeze(value: Any) -> Hashable:
    """A hashable form of an attribute; arrays by shape and type, and -0.0 unlike 0.0, which it equals."""
    if isinstance(value, np.ndarray):
        return ("array", value.shape, value.dtype.name)
    if isinstance(value, Mapping):
        return tuple((key, freeze(value[key])) for key in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic):
        return freeze(value.item())
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return "-0.0"
    return value


def _tensor(graph: OpGraph, name: str) -> tuple[tuple[int, ...], str]:
    info = graph.tensors[name]
    return info.shape, info.dtype.value


def _rescale(rescale: Rescale | None, act: tuple[Hashable, ...]) -> Hashable:
    if rescale is None:
        return None
    entries = entry_kinds(rescale)
    return (*entries, *act, rescale.axis, rescale.rounding.name, rescale.sum_bits)
