"""One tile of a matrix product: which parts of a and b it reads, and its loop nests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region
from torq_byoc.kernels.portion import Portion, alu_config
from torq_byoc.kernels.rescaling import act_config, is_identity, is_uniform, pair_bytes, pair_type
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Op0, Op1, Role, Tag

ROWS = 4
"""Rows of a that share the data vector: the ALU groups of an outer product."""

_COMFORTABLE_SHARE = 6
"""A block of packed columns in this part of LRAM leaves room for two slices with double buffers."""
_LARGEST_SHARE = 2
"""No block takes more than this part of LRAM."""


def column_block(graph: OpGraph, node: Node, config: NpuConfig) -> int:
    """Columns of b in one block: a vector, evened out over the blocks.

    When K is so long that a vector of columns crowds the on-chip memory, a block is as narrow as is comfortable,
    but not so narrow that its load takes less time than the rows of a keep the slices busy with it.  Where that
    leaves little of a vector, blocks stay whole and the product is divided along K: when PRAM holds all rows over
    a whole vector, and when narrow blocks would load more bytes a product than the sums that fit PRAM do.
    """
    a, b = (graph.tensors[name] for name in node.inputs[:2])
    inner, columns = b.shape[-2:]
    vector = config.vector_width(b.dtype, a.dtype, ROWS)
    if not packs_b(graph, node):
        return vector
    column_bytes = inner * b.dtype.size
    comfortable = config.lram_usable // (_COMFORTABLE_SHARE * column_bytes)
    largest = config.lram_usable // (_LARGEST_SHARE * column_bytes)
    rows = math.prod(a.shape[:-1])
    carried_rows = ROWS * config.slices
    beside_rows = min(largest, config.lram_usable // column_bytes - 2 * carried_rows)
    if rows <= carried_rows or beside_rows * (carried_rows + vector) < carried_rows * vector:
        return math.ceil(columns / math.ceil(columns / vector))
    busy = math.ceil(rows / (ROWS * config.slices) * config.dma_bytes_per_cycle / b.dtype.size)
    widest = max(1, min(vector, largest, max(comfortable, busy)))
    return math.ceil(columns / math.ceil(columns / widest))


def packs_b(graph: OpGraph, node: Node) -> bool:
    """Whether b is a constant matrix, which the kernel packs."""
    name = node.inputs[1]
    return name in graph.constants and all(extent == 1 for extent in graph.tensors[name].shape[:-2])


def operand_region(shape: Sequence[int], position: int, output: Region, portion: Region | None = None) -> Region:
    """The box of a (position 0) or b (position 1) under an output box; broadcast leading dims have extent 1.

    ``portion`` is a range of k; None takes all of it.
    """
    dims = len(shape) - 2
    first = len(output.start) - len(shape)
    start = tuple(output.start[first + d] if shape[d] > 1 else 0 for d in range(dims))
    extent = tuple(output.extent[first + d] if shape[d] > 1 else 1 for d in range(dims))
    k = portion or Region((0,), (shape[-1 - position],))
    if position == 0:
        return Region((*start, output.start[-2], *k.start), (*extent, output.extent[-2], *k.extent))
    return Region((*start, *k.start, output.start[-1]), (*extent, *k.extent, output.extent[-1]))


class _Matrix(msgspec.Struct, frozen=True, gc=False):
    """An operand in LRAM as the nest walks it: address of the region's first element, bytes a step of every
    leading output dim, of a row and of a column."""

    address: int
    dtype: DType
    leading: tuple[int, ...]
    row: int
    column: int

    @classmethod
    def at(cls, placement: Placement, shape: Sequence[int], region: Region, rank: int) -> _Matrix:
        """A tile of a tensor of ``shape``, seen from its part ``region`` in an output of ``rank`` dims."""
        strides = tuple(
            stride if extent > 1 else 0 for stride, extent in zip(placement.strides[:-2], shape[:-2], strict=True)
        )
        leading = (0,) * (rank - len(shape)) + strides
        return cls(placement.offset_of(region.start), placement.dtype, leading, *placement.strides[-2:])


class Product(msgspec.Struct, frozen=True, gc=False):
    """One tile of a matrix product.

    Attributes:
        inner: K, or its part in ``portion``.
        block, block_bytes: columns of a packed block, and bytes between blocks; 0 bytes when b lies row-major.
        pairs, pair_step: address of the first bias/scale entry (None: ACT does without), bytes a column.
    """

    region: Region
    inner: int
    a: _Matrix
    b: _Matrix
    result: _Matrix
    block: int
    block_bytes: int
    pairs: int | None
    pair_step: int
    node: Node
    portion: Portion | None

    @classmethod
    def of(
        cls,
        graph: OpGraph,
        node: Node,
        region: Region,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
        block: int,
        portion: Portion | None = None,
    ) -> Product:
        """The product of a ``Kernel.tasks`` call, or of one for a portion of K."""
        a_info, b_info = (graph.tensors[name] for name in node.inputs[:2])
        rank = len(region.start)
        k = portion.box if portion else None
        a = _Matrix.at(inputs[0], a_info.shape, operand_region(a_info.shape, 0, region, k), rank)
        packed = packs_b(graph, node)
        if packed:
            weights, size = constants[0], b_info.dtype.size
            address = weights.granule(region.start[-1] // block)
            b = _Matrix(address, b_info.dtype, (0,) * (rank - 2), block * size, size)
        else:
            b = _Matrix.at(inputs[1], b_info.shape, operand_region(b_info.shape, 1, region, k), rank)
        pairs_address, step = None, 0
        if not is_identity(node.rescale):
            step = 0 if is_uniform(node.rescale) else pair_bytes(a_info.dtype.is_float)
            pairs_address = constants[-1].granule(region.start[-1] // block if step else 0)
        return cls(
            region=region,
            inner=k.extent[0] if k else b_info.shape[-2],
            a=a,
            b=b,
            result=_Matrix.at(output, graph.tensors[node.output].shape, region, rank),
            block=block,
            block_bytes=constants[0].granule_bytes if packed else 0,
            pairs=pairs_address,
            pair_step=step,
            node=node,
            portion=portion,
        )

    def nests(self) -> Iterator[LoopNest]:
        """Whole groups of rows and the rest, each with whole blocks of columns and the rest."""
        groups, rows = divmod(self.region.extent[-2], ROWS)
        row_parts = [part for part in ((0, groups, ROWS), (groups * ROWS, 1, rows)) if part[1] * part[2]]
        for row_part, column_part in itertools.product(row_parts, self._column_parts()):
            yield self._nest(row_part, column_part)

    def _column_parts(self) -> list[tuple[int, int, int]]:
        """(first column, blocks, columns a block); one block when all columns are equally far apart."""
        columns = self.region.extent[-1]
        if not self.block_bytes:
            return [(0, 1, columns)]
        blocks, rest = divmod(columns, self.block)
        return [part for part in ((0, blocks, self.block), (blocks * self.block, 1, rest)) if part[1] * part[2]]

    def _nest(self, rows: tuple[int, int, int], columns: tuple[int, int, int]) -> LoopNest:
        first_row, groups, members = rows
        first_column, blocks, lanes = columns
        leading = [f"batch{axis}" for axis in range(len(self.region.start) - 2)]
        loops = [
            *(LoopSpec(name, extent) for name, extent in zip(leading, self.region.extent[:-2], strict=True)),
            LoopSpec("row_group", groups),
            LoopSpec("block", blocks, Role.PARALLEL, Tag.OUT_CHANNEL),
            LoopSpec("column", lanes, Role.LANE, Tag.OUT_CHANNEL),
            LoopSpec("row", members, Role.GROUP),
            LoopSpec("k", self.inner, Role.REDUCE, Tag.IN_CHANNEL),
        ]
        b_first = first_column // self.block * self.block_bytes if self.block_bytes else first_column * self.b.column
        result_first = first_row * self.result.row + first_column * self.result.column
        return LoopNest(
            loops=tuple(loops),
            data=Operand(
                self.b.address + b_first,
                self.b.dtype,
                {**_over(leading, self.b), "block": self.block_bytes, "column": self.b.column, "k": self.b.row},
            ),
            weight=Operand(
                self.a.address + first_row * self.a.row,
                self.a.dtype,
                {**_over(leading, self.a), "row_group": ROWS * self.a.row, "row": self.a.row, "k": self.a.column},
            ),
            bias=self._bias(first_column),
            result=Operand(
                self.result.address + result_first,
                self.result.dtype,
                {
                    **_over(leading, self.result),
                    "row_group": ROWS * self.result.row,
                    "block": self.block * self.result.column,
                    "column": self.result.column,
                    "row": self.result.row,
                },
            ),
            alu=alu_config(Op0.MUL, Op1.ACC, self.portion),
            act=act_config(self.node.rescale, self.a.dtype, self.b.dtype),
            weights=members,
        )

    def _bias(self, first_column: int) -> Operand | None:
        if self.pairs is None:
            return None
        return Operand(
            self.pairs + first_column * self.pair_step,
            pair_type(self.a.dtype.is_float),
            {"block": self.block * self.pair_step, "column": self.pair_step},
        )


def _over(names: Sequence[str], matrix: _Matrix) -> dict[str, int]:
    return dict(zip(names, matrix.leading, strict=True))
