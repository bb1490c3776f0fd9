"""Bands of segments with the same end: regions that were carried back through the shorter one go on from there.

Segments that end with the same node are all tried in the search, and their bands differ only in the nodes in front.
"""

from __future__ import annotations

from collections.abc import Sequence

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.fusion.bands import Band, BandCut, InputRegions, completed, share, step_back
from torq_byoc.schedules.fusion.segment import Carried, Segment


def planned_band(segment: Segment, cut: BandCut, index: int) -> Band | None:
    """``bands.band`` by what kernels say of their reads, remembered for longer segments."""
    carried = _carried(segment, cut, index)
    if carried is None:
        return None
    found = {position: box for position, box in enumerate(carried.outputs) if box is not None}
    return completed(segment, cut, found, carried.held, _reads_of(segment))


def _carried(segment: Segment, cut: BandCut, index: int) -> Carried | None:
    key = (cut.axis, cut.size, cut.outer, index)
    if key not in segment.carried:
        segment.carried[key] = _carried_on(segment, cut, index)
    return segment.carried[key]


def _carried_on(segment: Segment, cut: BandCut, index: int) -> Carried | None:
    """From where the segment without its first node got to, if it says the same of the others."""
    outputs: tuple[Region | None, ...] = ()
    held: dict[str, Region] = {}
    if segment.end is not None:
        known = _carried(segment.end, cut, index)
        if known is None:
            return None
        outputs, held = known.outputs, dict(known.held)
    reads = _reads_of(segment)
    for position in reversed(range(len(segment.nodes) - len(outputs))):
        wanted = None
        if segment.delivers(position):
            wanted = share(segment, position, cut, index)
            if wanted is None:
                return None
        outputs = (step_back(segment, position, wanted, held, reads), *outputs)
    return Carried(outputs, held)


def _reads_of(segment: Segment) -> InputRegions:
    def reads(position: int, box: Region) -> Sequence[Region]:
        return segment.models[position].input_regions(box)

    return reads
