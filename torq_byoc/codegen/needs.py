"""What a program's buffers need of LRAM, wherever they come to lie: found once for all attempts at placing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.clean_copies import Copy
from torq_byoc.codegen.hl import RunProgram
from torq_byoc.codegen.lifetimes import (
    Fetch,
    Lifetime,
    Uses,
    all_fetches,
    fixed_lifetimes,
    lingering_until,
    ready_slot,
    steps_by_node,
    stores_by_buffer,
)
from torq_byoc.codegen.twins import NO_TWINS, Twins
from torq_byoc.npu_model.config import NpuConfig

CELL_WORDS = 4
"""LRAM words in the unit of placement."""
PART_OF_LARGE_TILES = 4
"""Tiles of more than this part of the LRAM: beside two of them the next one finds no room but what the first leaves."""


@dataclass(frozen=True, eq=False)
class Needs:
    """Sizes, times and contents of the LRAM buffers of a program.

    Attributes:
        program: slice programs, loads and stores, step by step.
        cell: bytes of the unit of placement.
        copies: what buffers hold that XRAM holds as well; none where such copies shall not be used again.
        steps: number of slots.
        cells: of every buffer.
        roomier: cells of the places that should be larger than the fetched buffers in them, for the tiles after those.
        fetches: the buffers that loads fill, in the order of first use, each with its first slot after the stores that
            it reads.
        starts: first step of every node.
        fixed: lifetimes of the others: results and resident tensors.
        lingering: for every stored result the slot until which it should stay for its transfer.
        fetched: the same by buffer.
        twins: of operands of calls that are alike; none where they shall not be placed alike.
        tiles_of: by the first step of a node, all of its steps.
    """

    program: RunProgram
    cell: int
    copies: Mapping[int, Copy]
    steps: int
    cells: tuple[int, ...]
    roomier: Mapping[int, int]
    fetches: tuple[tuple[Fetch, int], ...]
    starts: Mapping[str, int]
    fixed: Mapping[int, Lifetime]
    lingering: Mapping[int, int]
    fetched: Mapping[int, Fetch]
    twins: Twins
    tiles_of: Mapping[int, Sequence[int]]

    @classmethod
    def of(
        cls,
        program: RunProgram,
        config: NpuConfig,
        copies: Mapping[int, Copy] | None = None,
        twins: Twins = NO_TWINS,
    ) -> Needs:
        """The needs of a program on a machine."""
        cell = config.lram_word * CELL_WORDS
        uses, stores = Uses.of(program), stores_by_buffer(program)
        fetches = all_fetches(program, uses)
        fixed = fixed_lifetimes(program, uses, fetches)
        cells = tuple([-(-buffer.nbytes // cell) or 1 for buffer in program.buffers])
        return cls(
            program,
            cell,
            copies or {},
            1 + max([op.step for op in program.ops], default=0),
            cells,
            _roomier(fetches, cells, config.lram_usable // cell),
            tuple([(fetch, ready_slot(fetch, stores)) for fetch in fetches]),
            uses.starts,
            fixed,
            lingering_until(program, fixed),
            {fetch.buffer: fetch for fetch in fetches},
            twins,
            {steps[0]: steps for steps in steps_by_node(program).values()},
        )


def _roomier(fetches: Sequence[Fetch], cells: Sequence[int], capacity: int) -> dict[int, int]:
    """Cells of the larger one of the next two tiles of the same operand, where those are more and tiles are large.

    A tile at a border has no halo there.  In a place of its own size the tile after the next one would not fit: it
    would wait for the step before it, and what is loaded early take the room.
    """
    following: dict[tuple[int, int], list[int]] = {}
    found = {}
    for fetch in reversed(fetches):
        later = following.setdefault((fetch.node_start, fetch.sources[0].buffer), [])
        room = max(later[-2:], default=0)
        if room > cells[fetch.buffer] and room * PART_OF_LARGE_TILES > capacity:
            found[fetch.buffer] = room
        later.append(cells[fetch.buffer])
    return found
