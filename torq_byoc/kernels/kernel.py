"""What a slice kernel is: the contract between operators, decisions and code generation.

A kernel is one class in one file, registered with ``@register``.  It says how its operator divides into
tiles, how its constants are packed, and emits the slice tasks of one tile through the DSL.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import SliceTask


class Region(msgspec.Struct, frozen=True, gc=False):
    """A box of a tensor: first index and extent along every axis.

    A struct rather than a dataclass: a compilation makes and looks up hundreds of thousands of them.
    """

    start: tuple[int, ...]
    extent: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Region:
        """All of a tensor."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.extent)


class Layout(msgspec.Struct, frozen=True, gc=False):
    """How a kernel wants an operand's tile in LRAM: dense row-major, or split into stride phases.

    With ``phases`` (py, px) other than (1, 1) the last two axes are split: the tile is stored as
    [py, px, ..., ceil(rows/py), ceil(columns/px)], phase of tensor index (Y % py, X % px); kernels take the
    actual distances from ``Placement``.  The tile's region starts at a multiple of (py, px) on these axes.
    ``first_only`` says for either axis that nothing but its first phase is read: the others are not there.
    """

    phases: tuple[int, int] = (1, 1)
    first_only: tuple[bool, bool] = (False, False)

    @property
    def kept(self) -> tuple[int, int]:
        """Phases along either axis that a tile has."""
        rows, columns = (1 if alone else count for count, alone in zip(self.phases, self.first_only, strict=True))
        return rows, columns

    def elements(self, extent: Sequence[int]) -> int:
        """Elements that a box takes in LRAM: its phase planes are padded to whole phases."""
        if self.phases == (1, 1):
            return math.prod(extent)
        plane = (-(-size // phase) for size, phase in zip(extent[-2:], self.phases, strict=True))
        return math.prod(extent[:-2]) * math.prod(plane) * math.prod(self.kept)


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a tile of a tensor lies in LRAM.

    Attributes:
        address: LRAM byte address of the element at ``region.start`` (phase 0, 0).
        region: the part of the tensor that is there.
        strides: bytes between neighbours along each tensor axis (within a phase plane for the last two
            axes of a phased tile).
        phases, phase_strides: see ``Layout``; bytes between phase planes.
    """

    address: int
    region: Region
    strides: tuple[int, ...]
    dtype: DType
    phases: tuple[int, int] = (1, 1)
    phase_strides: tuple[int, int] = (0, 0)

    def offset_of(self, index: Sequence[int]) -> int:
        """LRAM byte address of a tensor index (dense tiles only)."""
        return self.address + sum(
            (i - s) * stride for i, s, stride in zip(index, self.region.start, self.strides, strict=True)
        )


@dataclass(frozen=True, eq=False)
class PackedConstant:
    """A constant operand as the kernel wants it in memory.

    ``data`` is uint8[granules, bytes a granule].  Granule g belongs to output indices [g * step,
    (g + 1) * step) along ``axis`` of the output; a tile loads the granules that cover its region.
    ``axis`` None: one granule that every tile needs.  ``pieces`` above 1: every granule consists of so many
    equal pieces back to back, one an index of the first reduction axis (``portion.CarryingKernel``).
    """

    name: str
    data: np.ndarray
    axis: int | None = None
    step: int = 1
    pieces: int = 1


class ConstantPlacement(msgspec.Struct, frozen=True, gc=False):
    """Where granules [first, first + count) of a packed constant lie in LRAM, back to back."""

    address: int
    first: int
    count: int
    granule_bytes: int

    def granule(self, index: int) -> int:
        """LRAM byte address of a granule."""
        return self.address + (index - self.first) * self.granule_bytes


class Kernel(ABC):
    """One operator on the slices.  All methods are pure; ``node.inputs`` that are constants of the graph
    are packed by ``constants`` when the kernel lists them there, and are ordinary inputs otherwise.

    Attributes:
        op: the operator.
        reads_whole_rows: tasks read all columns of the input rows that are there, also those that no result
            of their region depends on (lanes that walk a plane).
        writes_phases: tasks can write an output tile that lies in the stride phases of its reader.
        translates: tasks of equally large regions of a node, whose dense operands are laid out alike, take equally many
            bytes and cycles wherever the regions lie: no border of the tensors has tasks of its own.
        moves: tasks of equally large regions of a node, whose dense operands are laid out alike, differ in the base
            addresses of their descriptors alone, each as far from the first element that the region needs of its
            operand; where the kernel does not ``translate``, as long as the tensors keep their distances.  What regions
            in a row along an axis read moves on by equal steps as well, but for what a shorter last one reads.
    """

    op: str
    reads_whole_rows: bool = False
    writes_phases: bool = False
    translates: bool = False
    moves: bool = False

    @abstractmethod
    def reference(self, graph: OpGraph, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The whole-tensor result, in the machine's arithmetic (``npu_model.numerics``)."""

    @abstractmethod
    def tensor_inputs(self, graph: OpGraph, node: Node) -> tuple[int, ...]:
        """Positions of ``node.inputs`` that arrive as tiles of tensors (the rest are packed constants)."""

    def constants(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[PackedConstant, ...]:
        """Packed weights and bias/scale pairs; none by default."""
        del graph, node, config
        return ()

    def input_layout(self, graph: OpGraph, node: Node, position: int) -> Layout:
        """Layout of a tensor input's tile; dense by default."""
        del graph, node, position
        return Layout()

    @abstractmethod
    def input_region(self, graph: OpGraph, node: Node, position: int, output: Region) -> Region:
        """The part of a tensor input that an output region reads, clipped to the tensor.

        For a phased layout the start is a multiple of the phases on the last two axes.
        """

    @abstractmethod
    def tile_steps(self, graph: OpGraph, node: Node, config: NpuConfig) -> tuple[int, ...]:
        """For every output axis the step at which it may be cut into tiles or between slices: 1 anywhere,
        4 at multiples of 4, 0 never."""

    @abstractmethod
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
        """The slice tasks that compute ``region`` of the output.

        ``output`` covers at least ``region``, each input at least ``input_region(..., region)``; both may
        cover more (the tile of another slice).  ``inputs`` follow ``tensor_inputs``, ``constants`` follow
        ``constants``.
        """

    def copied(self, graph: OpGraph, node: Node) -> Mapping[int, tuple[int, ...]]:
        """Inputs that the output holds unchanged, by index into ``tensor_inputs``: what to add to an index of the input
        to find the element in the output.  Such an input may be left out of ``tasks`` (an empty region) when its
        elements lie in their places already."""
        del graph, node
        return {}

    def cost_attributes(self, graph: OpGraph, node: Node) -> Mapping[str, Any]:
        """The attributes as far as steps, regions, and size and cycles of tasks depend on them: all by default, less
        the numbers that nothing but results is computed with."""
        del graph
        return node.attrs

    def unsupported(self, graph: OpGraph, node: Node, config: NpuConfig) -> str | None:
        """Why this node cannot run on the slices, or None when it can."""
        del graph, node, config
        return None

    def macs(self, graph: OpGraph, node: Node) -> int:
        """Multiply-accumulates of the whole operator; 0 unless it is a MAC operator (conv, matmul)."""
        del graph, node
        return 0


_KERNELS: dict[str, Kernel] = {}


def register(kernel: type[Kernel]) -> type[Kernel]:
    """Class decorator: make a kernel available under its ``op``."""
    _KERNELS[kernel.op] = kernel()
    return kernel


def kernel_for(op: str) -> Kernel:
    """The kernel of an operator.

    Raises:
        KeyError: no kernel has that name.
    """
    return _KERNELS[op]


def registered_ops() -> tuple[str, ...]:
    """Names of all operators that have a kernel, sorted."""
    return tuple(sorted(_KERNELS))
