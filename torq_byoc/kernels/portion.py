"""Reductions in portions: operands too long for the on-chip memory arrive part by part, the sums wait in PRAM.

A reduction over K terms may be computed as several tasks of one slice, one a portion of K, that carry their
partial sums in the slice's PRAM (``npu_model.partials``).  PRAM keeps one set of accumulators, so the output that
a slice computes this way is small: a *carried box*.  The order in which terms are folded is that of the uncut
reduction, and results are the same to the last bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import msgspec

from torq_byoc.errors import InternalError
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Kernel, Placement, Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, SliceTask


class Portion(msgspec.Struct, frozen=True, gc=False):
    """A part of a reduction, and whether it is the first or the last one.

    ``box`` runs over the reduction axes of the kernel (``CarryingKernel.reduction``).
    """

    box: Region
    first: bool
    last: bool


def alu_config(op0: Op0, op1: Op1, portion: Portion | None) -> AluConfig:
    """The ALU of a task that folds a portion, or with None the whole reduction."""
    if portion is None:
        return AluConfig(op0, op1)
    return AluConfig(op0, op1, clear=portion.first, output=portion.last)


class CarryingKernel(Kernel):
    """A kernel whose reduction can be divided into portions."""

    @abstractmethod
    def reduction(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """Extents of the reduction axes, outermost first, each of which may be cut anywhere; empty when this
        node's reduction cannot be divided.

        Pieces of packed constants (``PackedConstant.pieces``) follow the first axis.
        """

    @abstractmethod
    def carried_boxes(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[tuple[int, ...], ...]:
        """Largest extents of an output box whose accumulators fit PRAM, at least one choice when ``reduction``
        is not empty.  Boxes start at multiples of ``tile_steps``, or are not cut along an axis; smaller ones fit
        as well."""

    @abstractmethod
    def portion_region(self, graph: OpGraph, node: Node, position: int, output: Region, portion: Region) -> Region:
        """The part of a tensor input that an output region reads for a portion of the reduction."""

    @abstractmethod
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
        """The task that folds a portion into the sums of ``region``, which fits a carried box.

        Arguments are those of ``Kernel.tasks``; inputs cover at least ``portion_region``, of granules that
        come in pieces exactly those of the portion are there.  Only the last portion writes the output.
        """


def region_of(
    kernel: Kernel, graph: OpGraph, node: Node, position: int, output: Region, portion: Portion | None
) -> Region:
    """The part of a tensor input that an output region reads, for a portion of the reduction or with None for all."""
    if portion is None:
        return kernel.input_region(graph, node, position, output)
    return _carrying(kernel, node).portion_region(graph, node, position, output, portion.box)


def tasks_of(
    kernel: Kernel,
    graph: OpGraph,
    node: Node,
    config: NpuConfig,
    region: Region,
    portion: Portion | None,
    output: Placement,
    inputs: Sequence[Placement],
    constants: Sequence[ConstantPlacement],
) -> list[SliceTask]:
    """The slice tasks of a kernel call, for a portion of the reduction or with None for all of it."""
    if portion is None:
        return kernel.tasks(graph, node, config, region, output, inputs, constants)
    return _carrying(kernel, node).portion_tasks(graph, node, config, region, portion, output, inputs, constants)


def _carrying(kernel: Kernel, node: Node) -> CarryingKernel:
    if isinstance(kernel, CarryingKernel):
        return kernel
    raise InternalError(
        f"{node.op} is to be computed in portions, which its kernel does not offer",
        where=node.origin or node.name,
        remedy="report it with the model",
    )
