"""Matrix product: lanes are columns of b, the ALU groups are four rows of a (an outer product over k).

Both operands are read row-major.  A constant b is packed in blocks of as many columns as a vector holds, so
that a tile's columns are contiguous in memory; a computed b is read where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from torq_byoc.kernels.dsl import build
from torq_byoc.kernels.exact import exact_matmul
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, register
from torq_byoc.kernels.matmul_tile import ROWS, Product, column_block, operand_region, packs_b
from torq_byoc.kernels.portion import CarryingKernel, Portion
from torq_byoc.kernels.rescaling import is_identity, is_uniform, pairs, rescaled
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask


@register
class Matmul(CarryingKernel):
    """Batched matrix product a[..., M, K] @ b[..., K, N]; leading dims broadcast."""

    op = "matmul"
    translates = True
    moves = True

    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Kernel.reference``; exact for integers."""
        types = [graph.tensors[name].dtype for name in node.inputs[:2]]
        return rescaled(exact_matmul(inputs[0], inputs[1]), node.rescale, graph.tensors[node.output].dtype, *types)

    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """a, and b unless it is a constant matrix."""
        return (0,) if packs_b(graph, node) else (0, 1)

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
        if packs_b(graph, node):
            b = graph.constants[node.inputs[1]]
            blocks = _column_blocks(b.reshape(b.shape[-2:]), block)
            packed.append(PackedConstant("weights", blocks, last, block, pieces=b.shape[-2]))
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
        return operand_region(graph.tensors[node.inputs[position]].shape, position, output)

    def reduction(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """K."""
        del config
        return (graph.tensors[node.inputs[0]].shape[-1],)

    def carried_boxes(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[tuple[int, ...], ...]:
        """A group of rows by a block of columns."""
        leading = len(graph.tensors[node.output].shape) - 2
        return ((*(1,) * leading, ROWS, column_block(graph, node, config)),)

    def portion_region(self, graph: OpGraph, node: Node, position: int, output: Region, portion: Region) -> Region:
        """``input_region`` with a range of k."""
        return operand_region(graph.tensors[node.inputs[position]].shape, position, output, portion)

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
        product = Product.of(graph, node, region, output, inputs, constants, block)
        return [build(nest, config) for nest in product.nests()]

    def portion_tasks(
        self,
        graph: OpGraph,
        node: Node,
        config: NpuConfig,
        region: Region,
        portion: Portion,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        """See ``CarryingKernel.portion_tasks``."""
        block = column_block(graph, node, config)
        product = Product.of(graph, node, region, output, inputs, constants, block, portion)
        return [build(nest, config) for nest in product.nests()]

    def macs(self, graph: OpGraph, node: Node) -> int:
        """Output elements x K."""
        return math.prod(graph.tensors[node.output].shape) * graph.tensors[node.inputs[0]].shape[-1]


def _column_blocks(b: np.ndarray, block: int) -> np.ndarray:
    """[K, N] to uint8[ceil(N / block), bytes of [K, block]], missing columns zero."""
    inner, columns = b.shape
    blocks = -(-columns // block)
    padded = np.zeros((inner, blocks * block), b.dtype)
    padded[:, :columns] = b
    packed = np.ascontiguousarray(padded.reshape(inner, blocks, block).swapaxes(0, 1))
    return packed.view(np.uint8).reshape(blocks, -1)
