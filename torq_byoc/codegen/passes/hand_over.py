"""Hand over within a band: what a band of a fused group makes or loads is in one place for all its readers.

Before (one band)::

    load x[0:6] -> a     call first (a -> b)     store b -> t[0:6]
    load t[0:6] -> c     load x[1:5] -> d        call second (c, d -> e)

After::

    load x[0:6] -> a     call first (a -> b)     store b -> t[0:6]
                                                 call second (b, a -> e)

Stores to tensors that nobody loads any more are dead, which is another pass's business.  A reader that wants stride
phases makes the writer lay its result out in them; nothing dense is left to store then.  What a band makes in parts and
reads as a whole is made in one place.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from torq_byoc.codegen.hl import (
    ALONE,
    WRITE,
    Access,
    Buffer,
    BufferKind,
    CallOp,
    CallProgram,
    Load,
    PlacedOperand,
    SliceCall,
    Space,
    Store,
)
from torq_byoc.codegen.passes.rewriting import Placing, moved, placed_operands
from torq_byoc.codegen.tile_places import DENSE, fill, layout_of, place_bytes, tile_place
from torq_byoc.kernels.kernel import Layout, Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.timing import dma_cycles
from torq_byoc.schedules.fusion.reshaped import reshaped
from torq_byoc.schedules.tiles import hull, overlap

_Seen = tuple[int, tuple[int, ...], tuple[int, int], tuple[int, ...]]
"""A tensor as readers of a band see it: XRAM buffer, shape, stride phases, order of axes."""


@dataclass
class _BandTraffic:
    """What a band stores and loads: the buffers behind every stored tensor, and buffers loaded from a tensor."""

    made: dict[int, list[int]] = field(default_factory=dict)
    loaded: dict[_Seen, dict[int, Load]] = field(default_factory=dict)


@dataclass(frozen=True)
class HandOver:
    """The rewriting above.

    Attributes:
        config: the machine, for transfers of boxes that join what several readers need.
    """

    config: NpuConfig

    def __call__(self, program: CallProgram) -> CallProgram:
        """Rewrite every band."""
        return _Rewriting(program, self.config).run()


class _Rewriting:
    def __init__(self, program: CallProgram, config: NpuConfig) -> None:
        self.program, self.config = program, config
        self.operands = placed_operands(program)
        self.buffers = list(program.buffers)
        self.places: dict[int, Placing] = {}
        self.joined: dict[int, list[Load]] = {}
        """Loads that take the place of those into a buffer."""
        self.rephased: set[int] = set()
        """Tile buffers whose results are laid out in another way, or put together with others."""

    def run(self) -> CallProgram:
        for band in self._bands().values():
            for seen, loads in band.loaded.items():
                if seen[0] in band.made:
                    self._hand_over_parts(band.made[seen[0]], seen[2], list(loads))
                elif len(loads) > 1:
                    self._join(list(loads.items()))
        if not self.places:
            return self.program
        ops: list[CallOp] = []
        for op in self.program.ops:
            if type(op) is SliceCall:
                ops.append(moved(op, self.places))
            elif type(op) is Load and op.target.buffer in self.places:
                ops += self.joined.pop(op.target.buffer, ())
            elif not (type(op) is Store and op.source.buffer in self.rephased):
                ops.append(op)
        return replace(self.program, buffers=tuple(self.buffers), ops=tuple(ops))

    def _bands(self) -> dict[int, _BandTraffic]:
        bands: dict[int, _BandTraffic] = {}
        for op in self.program.ops:
            if op.band == ALONE:
                continue
            band = bands.setdefault(op.band, _BandTraffic())
            if type(op) is Store:
                makers = band.made.setdefault(op.target.buffer, [])
                if op.source.buffer not in makers:
                    makers.append(op.source.buffer)
            elif type(op) is Load and op.target.buffer in self.operands:
                operand = self.operands[op.target.buffer]
                seen = (op.source.buffer, operand.shape, operand.phases, operand.order)
                band.loaded.setdefault(seen, {}).setdefault(op.target.buffer, op)
        return bands

    def _hand_over_parts(self, makers: Sequence[int], phases: tuple[int, int], readers: Sequence[int]) -> None:
        """What is made part by part is read part by part, or put together in one place."""
        if len(makers) == 1:
            self._hand_over(makers[0], phases, readers)
            return
        by_parts: dict[tuple[int, ...], list[int]] = {}
        for reader in readers:
            read = self.operands[reader].region
            parts = tuple(maker for maker in makers if overlap(self.operands[maker].region, read))
            by_parts.setdefault(parts, []).append(reader)
        for parts, own in by_parts.items():
            if len(parts) == 1:
                self._hand_over(parts[0], phases, own)
                continue
            first = self.operands[parts[0]]
            box = functools.reduce(hull, (self.operands[part].region for part in parts))
            place = self._new(first, box, Layout(phases))
            self.places.update((buffer, _at(place)) for buffer in (*parts, *own))
            self.rephased.update(parts)

    def _hand_over(self, made: int, phases: tuple[int, int], readers: Sequence[int]) -> None:
        """Readers take a result where it was made."""
        place = self.operands[made]
        if phases != DENSE:
            place = self._new(place, place.region, Layout(phases))
            self.places[made] = _at(place)
            self.rephased.add(made)
        self.places.update((buffer, _at(place)) for buffer in readers)

    def _join(self, loads: Sequence[tuple[int, Load]]) -> None:
        """One box that covers what each reader needs, loaded for the first of them."""
        buffer, first = loads[0]
        operand = self.operands[buffer]
        box: Region = operand.region
        layouts = {layout_of(operand)}
        for other, _ in loads[1:]:
            box = hull(box, self.operands[other].region)
            layouts.add(layout_of(self.operands[other]))
        place = self._new(operand, box, layouts.pop() if len(layouts) == 1 else Layout(operand.phases))
        transfers, read = fill(place, self.config)
        source, target = msgspec.structs.replace(first.source, region=read), Access(place.buffer, WRITE)
        self.joined[buffer] = [
            msgspec.structs.replace(
                first, source=source, target=target, transfer=one, cycles=dma_cycles(one.nbytes, self.config)
            )
            for one in transfers
        ]
        self.places.update((other, _at(place)) for other, _ in loads)

    def _new(self, operand: PlacedOperand, region: Region, layout: Layout) -> PlacedOperand:
        place = tile_place(len(self.buffers), operand.shape, operand.dtype, region, layout, operand.order)
        name = self.buffers[operand.buffer].name
        self.buffers.append(Buffer(place.buffer, name, Space.LRAM, place_bytes(place), BufferKind.ACTIVATION))
        return place


def _at(place: PlacedOperand) -> Placing:
    """In this place, as the type and shape that the operand has (with phases, a shape of the same planes)."""

    def placed(operand: PlacedOperand) -> PlacedOperand:
        if operand.shape == place.shape:
            return msgspec.structs.replace(place, dtype=operand.dtype)
        region = reshaped(place.region, place.shape, operand.shape)
        return tile_place(place.buffer, operand.shape, operand.dtype, region, layout_of(place))

    return placed
