"""The search at one segment: the cheapest way to run it band by band in a given amount of LRAM."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from functools import cached_property

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules import candidates
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.bands import BandCut, band_count
from torq_byoc.schedules.fusion.division import Division
from torq_byoc.schedules.fusion.parts import part_options
from torq_byoc.schedules.fusion.pricing import GroupChoice, PricedDivision
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.record import GroupDecision, GroupParts
from torq_byoc.schedules.techniques import ALL, Techniques

MAX_BANDS = 64
"""Most bands along an axis."""
MAX_NESTED_BANDS = 512
"""Most bands in all where an outer axis is cut as well."""
_PRICED = 8
"""Band sizes priced from the largest one that fits."""
NARROW = 2
"""Bands of at most so many steps are narrow."""
_PATIENCE = 3
"""Sizes in a row that cost more than the best one before the search along an axis ends."""


_Asked = tuple[BandCut, int, frozenset[str], tuple[int | None, ...] | None]
"""Cut, buffering depth, what is resident, and the split axes where they are given."""


class GroupSpace:
    """All decisions of one segment.

    Args:
        segment: the nodes.
        config: the machine.
        weights: constants of the cost model.
        techniques: what decisions may make use of.
    """

    def __init__(self, segment: Segment, config: NpuConfig, weights: CostWeights, techniques: Techniques = ALL) -> None:
        self.segment, self.config, self.weights, self.techniques = segment, config, weights, techniques
        self._known_sizes: dict[tuple[int, int | None], Sequence[int]] = {}
        self._divisions: dict[BandCut, PricedDivision | None] = {}
        self._choices: dict[_Asked, GroupChoice] = {}
        self._answers: dict[frozenset[str], list[tuple[int, GroupChoice | None]]] = {}

    def best(self, available: int, resident: frozenset[str]) -> GroupChoice | None:
        """The cheapest decision that fits ``available`` bytes beside the resident tensors; None when none does.

        Args:
            available: bytes of LRAM for everything that is not resident.
            resident: names of the segment's sources and outputs that lie in LRAM as a whole.
        """
        answers = self._answers.setdefault(resident, [])
        for asked, known in answers:
            if (0 if known is None else known.demand) <= available <= asked:
                return known
        found = [choice for cut in self._cuts for choice in self._along(*cut, available, resident)]
        best = min(found, key=lambda choice: choice.rank, default=None)
        if best is None or self._narrow(best.decision):
            found += self._part_by_part(available, resident)
            best = min(found, key=lambda choice: choice.rank, default=None)
        answers.append((available, best))
        return best

    def _narrow(self, decision: GroupDecision) -> bool:
        """Whether bands have hardly any rows: where windows overlap, many of them are computed twice."""
        return decision.size <= NARROW * self.segment.last.steps[decision.axis]

    def _part_by_part(self, available: int, resident: frozenset[str]) -> Iterator[GroupChoice]:
        """Choices in which some nodes go through a band part by part; in smaller parts while that is better, and with
        weights that come anew only where they cannot stay."""
        best = float("inf")
        for options in self._part_options if self.techniques.double_buffering else ():
            if best < float("inf"):
                return
            for parts in options:
                axes = [axis for axis, outer in self._cuts if outer is None and axis != parts.axis]
                found = [choice for axis in axes for choice in self._along(axis, None, available, resident, parts)]
                yield from found
                rank = min((choice.rank[0] for choice in found), default=float("inf"))
                if rank > best:
                    break
                best = rank

    @cached_property
    def _part_options(self) -> tuple[tuple[GroupParts, ...], ...]:
        return part_options(self.segment)

    def priced(self, decision: GroupDecision, resident: frozenset[str]) -> GroupChoice | None:
        """A given decision; None when the segment cannot be divided so."""
        division = self._division(BandCut.of(decision))
        if division is None:
            return None
        return self._choice(division, decision.buffers, resident, decision.split_axes)

    def can_divide(self, decision: GroupDecision) -> bool:
        """Whether the segment can be divided so at all."""
        return self._division(BandCut.of(decision)) is not None

    def _split_axes(self) -> tuple[int | None, ...] | None:
        """One slice for every node where no node may be divided; None leaves it to the division."""
        return None if self.techniques.slice_split else (None,) * len(self.segment.nodes)

    @cached_property
    def _cuts(self) -> list[tuple[int, int | None]]:
        """Axes of the last output that are worth cutting: rows, channels; columns of a plane never.  Each alone, and
        inside an outer one where some operand then stays for the bands of a step and would not otherwise."""
        last = self.segment.last
        rank = len(last.shape)
        axes = [axis for axis in range(rank) if last.steps[axis] and last.shape[axis] > last.steps[axis]]
        planar = rank >= 4 and any(model.kernel.reads_whole_rows for model in self.segment.models)
        free = [axis for axis in reversed(axes) if not planar or axis < rank - 1]
        nested = [(axis, outer) for axis in free for outer in axes if outer < axis and self._stays_inside(axis, outer)]
        return [*((axis, None) for axis in free), *nested]

    def _stays_inside(self, axis: int, outer: int) -> bool:
        """Whether some tensor from outside is read whole along an axis, in parts along the outer one, by a node whose
        output has both."""
        if self.segment.reshapes:
            return False
        return any(
            name in self.segment.sources and model.moves(index, outer) and not model.moves(index, axis)
            for model, names in zip(self.segment.models, self.segment.names, strict=True)
            for index, name in enumerate(names)
            if axis < len(model.shape)
        )

    def _along(
        self,
        axis: int,
        outer: int | None,
        available: int,
        resident: frozenset[str],
        parts: GroupParts | None = None,
    ) -> Iterator[GroupChoice]:
        """Choices that cut one axis: from the largest bands of which two fit, and before them from the largest of which
        one fits, to smaller ones while they promise something."""
        cuts = [BandCut(axis, size, outer, parts) for size in self._sizes(axis, outer)]
        finest = self._division(cuts[-1]) if cuts else None
        if finest is None:
            return
        depths = (2, 1) if self.techniques.double_buffering else (1,)
        for buffers in depths if parts is None else (2,):  # parts are there to make room for the second buffer
            if finest.demand(buffers, resident) > available:
                continue  # nor do larger bands fit
            found = list(self._of_sizes(cuts, buffers, available, resident))
            yield from found
            if found:  # larger bands alone may do with one buffer
                cuts = [cut for cut in cuts if cut.size > max(choice.decision.size for choice in found)]

    def _sizes(self, axis: int, outer: int | None) -> Sequence[int]:
        """Extents of bands along an axis, the largest first."""
        key = (axis, outer)
        if key not in self._known_sizes:
            last = self.segment.last
            most = MAX_BANDS if outer is None else MAX_NESTED_BANDS
            least = 1 if outer is None else 2  # a run of one band is the cut along the outer axis alone
            sizes = candidates.axis_extents(last.shape[axis], last.steps[axis])
            cuts = [BandCut(axis, size, outer) for size in sizes]
            self._known_sizes[key] = [
                cut.size
                for cut in cuts
                if least <= cut.run(last.shape) <= MAX_BANDS and band_count(self.segment, cut) <= most
            ]
        return self._known_sizes[key]

    def _of_sizes(
        self, cuts: Sequence[BandCut], buffers: int, available: int, resident: frozenset[str]
    ) -> Iterator[GroupChoice]:
        """Choices of one buffering depth, from the largest bands that fit on."""

        def fits(cut: BandCut) -> bool:
            division = self._division(cut)
            return division is not None and division.demand(buffers, resident) <= available

        best, worse = float("inf"), 0
        for cut in cuts[bisect.bisect_left(cuts, True, key=fits) :][:_PRICED]:
            division = self._division(cut)
            if division is None:
                return
            choice = self._choice(division, buffers, resident, self._split_axes())
            if choice.demand <= available:
                yield choice
            worse = worse + 1 if choice.rank[0] > best else 0
            best = min(best, choice.rank[0])
            if worse == _PATIENCE:
                return

    def _choice(
        self,
        division: PricedDivision,
        buffers: int,
        resident: frozenset[str],
        split_axes: tuple[int | None, ...] | None,
    ) -> GroupChoice:
        """A division with a buffering depth, priced once."""
        asked = (division.division.cut, buffers, resident, split_axes)
        found = self._choices.get(asked)
        if found is None:
            found = self._choices[asked] = division.choice(buffers, resident, split_axes)
        return found

    def _division(self, cut: BandCut) -> PricedDivision | None:
        if cut not in self._divisions:
            division = Division.of(self.segment, cut)
            self._divisions[cut] = None if division is None else PricedDivision(division, self.config, self.weights)
        return self._divisions[cut]
