"""The hardware description: every number of the machine that anything else may depend on.

Defaults are the Synaptics SL2610 as ``docs/hardware.md`` gives it.  Nothing outside this file knows a
size, a rate or a limit; a what-if machine is another ``NpuConfig``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from torq_byoc.npu_model.dtypes import DType


@dataclass(frozen=True)
class NdlLimits:
    """Limits of the loop-nest descriptors and of the registers beside them."""

    max_dims: int = 16
    max_h_dims: int = 15
    max_count: int = (1 << 28) - 1
    stride_bits: int = 24
    address_bits: int = 24
    max_s_count: int = 32767
    max_reduction: int = 1 << 16
    max_repeat: int = 1 << 24
    gather_groups: int = 4
    scatter_addresses: int = 2
    max_taps_per_load: int = 3
    max_shift: int = 63
    zero_point_bits: int = 16
    conv_strides: tuple[int, ...] = (1, 2)
    dma_strided_dims: int = 3
    dma_run_bits: int = 24


@dataclass(frozen=True)
class NpuConfig:
    """One NPU.  Sizes in bytes, rates in bytes a cycle, times in cycles unless said otherwise."""

    name: str = "sl2610"
    clock_mhz: int = 800
    slices: int = 2

    lram_bytes: int = 512 * 1024
    lram_word: int = 8
    lram_reserve: int = 1280

    dma_peak: float = 8.0
    dma_factor: float = 0.65
    dma_mtu: int = 4
    pessimistic_transfer_cycles: int = 64

    xram_base: int = 0x100000
    xram_bytes: int = (1 << 32) - 0x100000
    xram_page: int = 4096
    xram_align: int = 4

    alu_groups: int = 4
    alu_lanes: int = 64
    act_lanes: int = 16
    act_item_lanes: int = 4
    act_item_lanes_float: int = 8
    act_float_lanes: int = 8
    table_lanes: int = 2
    table_entries: int = 512
    data_bus: int = 72
    data_vector: int = 64
    weight_bus: int = 32
    bias_bus: int = 32
    result_bus: int = 64
    weight_ram: int = 32
    accumulators: int = 256

    nss_block_bytes: int = 640
    slice_config_bytes: int = 0x900
    slice_program_bytes: int = 5120
    css_cycles: int = 8000

    limits: NdlLimits = field(default_factory=NdlLimits)

    def __hash__(self) -> int:
        # What tells most machines apart: a compilation looks things up by its machine tens of thousands of times.
        return hash((self.lram_bytes, self.slices))

    def using(self, slices: int | None) -> NpuConfig:
        """The machine as a node sees it that may use so many of its slices; None for all."""
        return self if slices in (None, self.slices) else _with_slices(self, slices)

    @property
    def lram_usable(self) -> int:
        """Bytes of LRAM that buffers may use."""
        return self.lram_bytes - self.lram_reserve

    @cached_property
    def dma_bytes_per_cycle(self) -> float:
        """Rate of one DMA channel: peak x factor x burst efficiency 2^m / (2^m + 1.5)."""
        beats = 2.0**self.dma_mtu
        return self.dma_peak * self.dma_factor * beats / (beats + 1.5)

    @property
    def block_bytes(self) -> int:
        """Rows of a block that a transposition carries through PRAM, and bytes of a row: 32 of 32 bytes fill it."""
        return 1 << (math.isqrt(4 * self.accumulators).bit_length() - 1)

    def vector_width(self, data: DType, weight: DType | None, weights: int = 1) -> int:
        """Elements of D that the ALU takes in one cycle.

        Args:
            data: type of the D operand.
            weight: type of the W operand, or None when the ALU runs without weights.
            weights: weights applied in parallel (1..16).

        Returns:
            V of the hardware doc, section 2.2.
        """
        if data.is_float:
            width = self.data_vector // data.size
            return width if weight is None or weights <= 4 else width // 2
        width = self.data_vector // (data.size * (weight.size if weight else 1))
        if weights > 8:
            return width // 4
        return width // 2 if weights > 4 else width

    def act_width(self, data: DType, weight: DType | None, *, per_item: bool = False, table: bool = False) -> int:
        """Results that ACT finishes in one cycle (A of the hardware doc, section 2.3).

        Args:
            data: type of the D operand.
            weight: type of the W operand, or None.
            per_item: bias or scale differs from lane to lane.
            table: the result goes through the look-up table.
        """
        if table:
            return self.table_lanes
        if data.is_float:
            return self.act_item_lanes_float if per_item else self.act_float_lanes
        width = max(1, self.act_lanes // (data.size * (weight.size if weight else 1)))
        return min(width, self.act_item_lanes) if per_item else width

    def peak_macs(self, data: DType, weight: DType) -> int:
        """Multiply-accumulates a cycle of one slice for this pair of types."""
        return self.alu_groups * self.vector_width(data, weight, self.alu_groups)


@lru_cache(maxsize=256)
def _with_slices(config: NpuConfig, slices: int) -> NpuConfig:
    return replace(config, slices=slices)
