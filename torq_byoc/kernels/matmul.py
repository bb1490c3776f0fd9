"""Matrix product: lanes are columns of b, the ALU groups are four rows of a (an outer product over k).

Both operands are read row-major.  A constant b is packed in blocks of as many columns as a vector holds, so
that a tile's columns are contiguous in memory; a computed b is read where it lies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.exact import exact_matmul
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Kernel, PackedConstant, Placement, Region, register
from torq_byoc.kernels.rescaling import act_config, is_identity, is_uniform, pair_bytes, pair_type, pairs, rescaled
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, Role, SliceTask, Tag

ROWS = 4
"""Rows of a that share the data vector: the ALU groups of an outer product."""

_GRANULE_SHARE = 8
"""A block of packed columns takes at most this part of LRAM: two slices, double buffered, with room to spare."""


@register
class Matmul(Kernel):
    """Batched matrix product a[..., M, K] @ b[..., K, N]; leading dims broadcast."""

    op = "matmul"

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Kernel.reference``; exact for integers."""
        types = [graph.tensors[name].dtype for name in node.inputs[:2]]
        return rescaled(exact_matmul(inputs[0], inputs[1]), node.rescale, graph.tensors[node.output].dtype, *types)

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """a, and b unless it is a constant matrix."""
        return (0,) if _packs_b(graph, node) else (0, 1)

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Why the machine cannot run this product, or None when it can."""
        inner = graph.tensors[node.inputs[0]].shape[-1]
        if inner > config.limits.max_reduction:
            return f"{inner} products per output, the limit is {config.limits.max_reduction}"
        return None

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """Column blocks of a constant b, then bias/scale entries unless ACT does without them."""
        last = len(graph.tensors[node.output].shape) - 1
        block = column_block(graph, node, config)
        packed = []
        if _packs_b(graph, node):
            b = graph.constants[node.inputs[1]]
            packed.append(PackedConstant("weights", _column_blocks(b.reshape(b.shape[-2:]), block), last, block))
        if not is_identity(node.rescale):
            packed.append(self._pairs(graph, node, block, last))
        return tuple(packed)

    def _pairs(self, graph: OpGraph, node: Node, block: int, axis: int) -> PackedConstant:
        is_float = graph.tensors[node.inputs[0]].dtype.is_float
        columns = graph.tensors[node.output].shape[-1]
        entries = pairs(node.rescale, columns, is_float)
        if is_uniform(node.rescale):
            return PackedConstant("pairs", entries[:1])
        granules = -(-columns // block)
        padded = np.zeros((granules * block, entries.shape[1]), np.uint8)
        padded[:columns] = entries
        return PackedConstant("pairs", padded.reshape(granules, -1), axis, block)

    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """Rows of a with all of k; all of k with the columns of b; 0 along broadcast leading dims."""
        shape = graph.tensors[node.inputs[position]].shape
        start, extent = _leading_region(shape, output)
        if position == 0:
            return Region((*start, output.start[-2], 0), (*extent, output.extent[-2], shape[-1]))
        return Region((*start, 0, output.start[-1]), (*extent, shape[-2], output.extent[-1]))

    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Leading dims anywhere, rows at groups of four, columns at whole vectors."""
        leading = len(graph.tensors[node.output].shape) - 2
        return (*(1,) * leading, ROWS, column_block(graph, node, config))

    def tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """See ``Kernel.tasks``: up to four tasks, for whole and remaining rows and columns."""
        block = column_block(graph, node, config)
        product = _Product.of(graph, node, region, output, inputs, constants, block)
        return [build(nest, config) for nest in product.nests()]

    def macs(self, graph: OpGraph, node: Node) -> int:
        """Output elements x K."""
        return int(np.prod(graph.tensors[node.output].shape)) * graph.tensors[node.inputs[0]].shape[-1]


def column_block(graph: OpGraph, node: Node, config: NpuConfig) -> int:
    """Columns of b in one block: a vector, evened out over the blocks, or fewer when K is so long that a block
    would crowd the on-chip memory."""
    a, b = (graph.tensors[name] for name in node.inputs[:2])
    inner, columns = b.shape[-2:]
    widest = config.vector_width(b.dtype, a.dtype, ROWS)
    if not _packs_b(graph, node):
        return widest
    room = config.lram_usable // (_GRANULE_SHARE * inner * b.dtype.size)
    widest = max(1, min(widest, room))
    blocks = -(-columns // widest)
    return -(-columns // blocks)


def _packs_b(graph: OpGraph, node: Node) -> bool:
    name = node.inputs[1]
    return name in graph.constants and all(extent == 1 for extent in graph.tensors[name].shape[:-2])


def _column_blocks(b: np.ndarray, block: int) -> np.ndarray:
    """[K, N] to uint8[ceil(N / block), bytes of [K, block]], missing columns zero."""
    inner, columns = b.shape
    blocks = -(-columns // block)
    padded = np.zeros((inner, blocks * block), b.dtype)
    padded[:, :columns] = b
    packed = np.ascontiguousarray(padded.reshape(inner, blocks, block).swapaxes(0, 1))
    return packed.view(np.uint8).reshape(blocks, -1)


def _leading_region(shape: Sequence[int], output: Region) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The box of an operand's leading dims under an output box; dims of extent 1 are broadcast."""
    dims = len(shape) - 2
    first = len(output.start) - len(shape)
    start = tuple(output.start[first + d] if shape[d] > 1 else 0 for d in range(dims))
    extent = tuple(output.extent[first + d] if shape[d] > 1 else 1 for d in range(dims))
    return start, extent


@dataclass(frozen=True)
class _Matrix:
    """An operand in LRAM as the nest walks it: address of the region's first element, bytes a step of every
    leading output dim, of a row and of a column."""

    address: int
    dtype: DType
    leading: tuple[int, ...]
    row: int
    column: int

    @classmethod
    def at(cls, placement: Placement, shape: Sequence[int], region: Region) -> _Matrix:
        """An operand tile of tensor ``shape``, seen from its part ``region`` and the output's leading dims."""
        missing = len(region.start) - len(shape)
        strides = tuple(
            stride if extent > 1 else 0 for stride, extent in zip(placement.strides[:-2], shape[:-2], strict=True)
        )
        start = region.start[missing:]
        return cls(placement.offset_of(start), placement.dtype, (0,) * missing + strides, *placement.strides[-2:])


@dataclass(frozen=True)
class _Product:
    """One tile of a matrix product."""

    region: Region
    inner: int
    a: _Matrix
    b: _Matrix
    result: _Matrix
    block: int
    block_bytes: int
    """Bytes between packed column blocks; 0 when b lies row-major."""
    pairs: int | None
    pair_step: int
    node: Node

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
    ) -> _Product:
        a_info, b_info = (graph.tensors[name] for name in node.inputs[:2])
        kernel, (inner, _) = Matmul(), b_info.shape[-2:]
        rank = len(region.start)
        a = _Matrix.at(inputs[0], a_info.shape, _aligned(kernel.input_region(graph, node, 0, region), rank))
        packed = _packs_b(graph, node)
        if packed:
            weights, size = constants[0], b_info.dtype.size
            address = weights.granule(region.start[-1] // block)
            b = _Matrix(address, b_info.dtype, (0,) * (rank - 2), block * size, size)
        else:
            b = _Matrix.at(inputs[1], b_info.shape, _aligned(kernel.input_region(graph, node, 1, region), rank))
        pairs_address, step = None, 0
        if not is_identity(node.rescale):
            step = 0 if is_uniform(node.rescale) else pair_bytes(a_info.dtype.is_float)
            pairs_address = constants[-1].granule(region.start[-1] // block if step else 0)
        return cls(
            region=region,
            inner=inner,
            a=a,
            b=b,
            result=_Matrix.at(output, graph.tensors[node.output].shape, region),
            block=block,
            block_bytes=constants[0].granule_bytes if packed else 0,
            pairs=pairs_address,
            pair_step=step,
            node=node,
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
            alu=AluConfig(Op0.MUL, Op1.ACC),
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


def _aligned(region: Region, rank: int) -> Region:
    """A region with leading dims added in front, so that it has ``rank`` of them."""
    missing = rank - len(region.start)
    return Region((0,) * missing + region.start, (1,) * missing + region.extent)


def _over(names: Sequence[str], matrix: _Matrix) -> dict[str, int]:
    return dict(zip(names, matrix.leading, strict=True))
