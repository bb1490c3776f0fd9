"""From requests to an allocation: taken apart, placed by first fit, and where that is not good enough searched for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torq_byoc.codegen.allocation.first_fit import first_fits
from torq_byoc.codegen.allocation.independent import taken_apart
from torq_byoc.codegen.allocation.request import Allocation, Request, max_live
from torq_byoc.codegen.allocation.sections import Sections
from torq_byoc.codegen.allocation.skyline import Guide, SkylineSearch

_QUICK = (
    Guide(16, nearness=0.3),
    Guide(16, 0.7),
    Guide(24, roughness=0.3),
    Guide(24, square=True),
    Guide(24, 0.65, 0.3, square=True),
)
_WIDE = (
    Guide(200, 0.1, 0.3, ease=0.005, square=True),
    Guide(200),
    Guide(200, 0.4, 0.3, ease=0.005, square=True),
)
_WIDEST = (
    Guide(600, 0.4, 0.3, ease=0.005, square=True),
    Guide(600, 0.1, 0.3, 0.3, ease=0.005, square=True),
    Guide(600, nearness=0.3),
)
_GUIDES = (_QUICK[:1], _QUICK, (*_QUICK, *_WIDE), (*_QUICK, *_WIDE, *_WIDEST))
_WORK = (2_000_000, 50_000_000, 2_000_000_000, 10_000_000_000)
"""Guides of the searches, and the work (array elements) that they may do together, by effort."""
_CLOSER = (0.05, 0.02, 0.0)
"""Heights over the lower bound that ``pack`` aims at, one after the other until one is out of reach."""
_RETREAT = (0.2, 0.1)
"""Heights that it aims at where even the first of those was out of reach."""

_Solver = Callable[[Sequence[Request], int, int], Allocation | None]
"""Solves a part, given the offset from which on it is placed and the height that others reach already."""


def allocate(requests: Sequence[Request], capacity: int, align: int, effort: int = 1) -> Allocation | None:
    """Place every request below ``capacity``.

    Args:
        requests: sizes and lifetimes.
        capacity: bytes available.
        align: offsets are multiples of this.
        effort: 0 (fast) to 3 (thorough).

    Returns:
        An allocation that fits, or None when none was found.
    """
    searches = _Searches(effort)

    def solve(part: Sequence[Request], base: int, reached: int) -> Allocation | None:
        del reached
        room = capacity // align - base
        if max_live(part) > room:
            return None
        return next(first_fits(part, room), None) or searches.below(part, room)

    found = _assembled(requests, align, solve)
    return found if found and found.height <= capacity else None


def pack(requests: Sequence[Request], align: int, effort: int = 1) -> Allocation:
    """The lowest allocation found.

    Args:
        requests: sizes and lifetimes.
        align: offsets are multiples of this.
        effort: 0 (fast) to 3 (thorough).
    """
    searches = _Searches(effort)
    bound = max_live([Request(_units(r.size, align), r.start, r.end) for r in requests])

    def solve(part: Sequence[Request], base: int, reached: int) -> Allocation:
        return _lowest(part, max(bound, reached) - base, searches)

    packed = _assembled(requests, align, solve)
    assert packed is not None, "every part fits below the sum of its sizes"
    return packed


def _lowest(requests: Sequence[Request], useful: int, searches: _Searches) -> Allocation:
    """The lowest allocation found of one part; nothing is gained below a ``useful`` height."""
    total, least = sum(request.size for request in requests), max_live(requests)
    best = min(first_fits(requests, total), key=lambda allocation: allocation.height)
    for aims in (_CLOSER, _RETREAT):
        for excess in aims:
            height = max(least + int(excess * least), useful)
            if best.height > height:
                found = searches.below(requests, height)
                if found is None:
                    break
                best = found
    return best


class _Searches:
    """Searches that share the work that may be done."""

    def __init__(self, effort: int) -> None:
        self._guides, self._left = _GUIDES[effort], _WORK[effort]

    def below(self, requests: Sequence[Request], height: int) -> Allocation | None:
        """An allocation of at most a height, by the first guide that leads to one."""
        sections = Sections(requests)
        for guide in self._guides:
            outcome = SkylineSearch(sections, height, guide).run(self._left)
            self._left -= outcome.work
            if outcome.offsets is not None:
                tops = (offset + request.size for offset, request in zip(outcome.offsets, requests, strict=True))
                return Allocation(outcome.offsets, max(tops))
        return None


def _assembled(requests: Sequence[Request], align: int, solve: _Solver) -> Allocation | None:
    """Solve part by part, in units of ``align``; None when some part is not solved."""
    units = [Request(_units(r.size, align), r.start, r.end) for r in requests]
    offsets = [0] * len(units)
    piles, parts = taken_apart(units)
    height = 0
    for pile in piles:
        cursor = pile.base
        for index in pile.members:
            offsets[index], cursor = cursor, cursor + units[index].size
        height = max(height, cursor)
    for part in sorted(parts, key=lambda part: -len(part.members)):
        solved = solve([units[i] for i in part.members], part.base, height)
        if solved is None:
            return None
        for index, offset in zip(part.members, solved.offsets, strict=True):
            offsets[index] = part.base + offset
        height = max(height, part.base + solved.height)
    return Allocation(tuple(offset * align for offset in offsets), height * align)


def _units(size: int, align: int) -> int:
    return -(-size // align)
