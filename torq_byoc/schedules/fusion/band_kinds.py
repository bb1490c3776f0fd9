"""What the bands of a group have in common, as plain data: their boxes, and what they load, hold and store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.node_operands import ConstantPart


class BandKind(msgspec.Struct, frozen=True, eq=False):
    """Bands that are alike.

    Attributes:
        times: how many.
        outputs: for every node the box of its output that such a band computes.
        held: for every tensor the part of it that lies in LRAM.
        steps: nodes and the boxes that they compute, in execution order (see ``Band``).
    """

    times: int
    outputs: tuple[Region, ...]
    held: Mapping[str, Region]
    steps: tuple[tuple[int, Region], ...]


class ConstantLoad(NamedTuple):
    """What a step of a band needs of a packed constant, unless the node's step before had the same.

    Attributes:
        step: which.
        constant: node, and which of its constants.
        part: what it needs.
    """

    step: int
    constant: tuple[int, int]
    part: ConstantPart


class BandTraffic(msgspec.Struct, frozen=True, gc=False):
    """Bytes that each band of a kind moves and holds beside what is resident.

    Attributes:
        times: how many bands.
        staying, flowing: operands that stay for several bands, and that each band loads anew.
        turning: those of the staying ones that are loaded when the outer axis moves on.
        parted, part: operands that each band loads part by part: all parts, and the largest one of each.
        data: what is loaded of tensors, constants left out.
        stored: results that go to XRAM.
        landing: those of them that no node of the segment reads.
        between: the most that is passed on between nodes at once.
    """

    times: int
    staying: int
    flowing: int
    turning: int
    parted: int
    part: int
    data: int
    stored: int
    landing: int
    between: int


class NodeLoads(NamedTuple):
    """What a step is the first of a band to need from XRAM, and what of its node's results goes there.

    Attributes:
        flowing: bytes and number of the operands that every band loads anew.
        turning: of those that are loaded when the outer axis moves on.
        staying: of those that are loaded once.
        stored: bytes of results.
    """

    flowing: tuple[int, int]
    turning: tuple[int, int]
    staying: tuple[int, int]
    stored: int
