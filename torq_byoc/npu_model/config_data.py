"""Hardware descriptions as plain data: typed reading, what a possible machine is, and the content hash."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from torq_byoc.errors import HardwareConfigError
from torq_byoc.npu_model.config import NdlLimits, NpuConfig

_AT_LEAST_ONE = (
    "clock_mhz",
    "slices",
    "lram_word",
    "xram_page",
    "xram_align",
    "xram_bytes",
    "alu_groups",
    "alu_lanes",
    "act_lanes",
    "act_item_lanes",
    "act_item_lanes_float",
    "act_float_lanes",
    "table_lanes",
    "data_bus",
    "data_vector",
    "weight_bus",
    "bias_bus",
    "result_bus",
    "weight_ram",
    "accumulators",
)
_NOT_NEGATIVE = ("dma_mtu", "pessimistic_transfer_cycles", "xram_base", "lram_reserve", "css_cycles")
_POWERS_OF_TWO = ("lram_word", "xram_page", "xram_align", "data_vector", "weight_bus", "result_bus", "bias_bus")

# Widths of the fields in the binary forms of slice and sequencer programs.
_LIMIT_RANGES = {
    "max_dims": (4, 16),
    "max_h_dims": (3, 15),
    "max_count": (1, (1 << 28) - 1),
    "stride_bits": (8, 24),
    "address_bits": (8, 24),
    "max_s_count": (1, (1 << 16) - 1),
    "max_reduction": (1, (1 << 28) - 1),
    "max_repeat": (1, (1 << 28) - 1),
    "gather_groups": (1, 64),
    "scatter_addresses": (1, 64),
    "max_taps_per_load": (1, 36),
    "max_shift": (0, 63),
    "zero_point_bits": (8, 16),
    "dma_strided_dims": (0, 255),
    "dma_run_bits": (8, 32),
}


def config_to_dict(config: NpuConfig) -> dict[str, Any]:
    """Every number of the machine by field name, nested limits under ``limits``."""
    return dict(msgspec.to_builtins(config))


def config_from_dict(data: Mapping[str, Any], where: str) -> NpuConfig:
    """A checked machine from plain data; fields left out keep the SL2610's value.

    Args:
        data: field names and values; ``limits`` is a mapping of its own.
        where: the file or section, for error messages.

    Raises:
        HardwareConfigError: an unknown key, a wrong type, or an impossible machine.
    """
    _reject_unknown(data, NpuConfig, where)
    limits = data.get("limits", {})
    if isinstance(limits, Mapping):
        _reject_unknown(limits, NdlLimits, f"{where}, limits")
    try:
        config = msgspec.convert(dict(data), NpuConfig)
    except msgspec.ValidationError as error:
        raise HardwareConfigError(
            "a value of the hardware description has the wrong type",
            where=where,
            why=str(error),
            remedy="give whole numbers for sizes and counts, decimal numbers for dma_peak and dma_factor",
        ) from error
    check_machine(config, where)
    return config


def content_hash(config: NpuConfig) -> str:
    """SHA-256 of everything but the name, in hex: equal for machines that behave alike."""
    data = config_to_dict(config)
    del data["name"]
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()


def check_machine(config: NpuConfig, where: str = "") -> None:
    """Refuse a description that no machine could have.

    Raises:
        HardwareConfigError: names the number and the limit it breaks.
    """
    where = where or f"hardware {config.name!r}"
    for name in _AT_LEAST_ONE:
        _require(getattr(config, name) >= 1, where, name, getattr(config, name), "at least 1")
    for name in _NOT_NEGATIVE:
        _require(getattr(config, name) >= 0, where, name, getattr(config, name), "at least 0")
    for name in _POWERS_OF_TWO:
        value = getattr(config, name)
        _require(value & (value - 1) == 0, where, name, value, "a power of two")
    _check_limits(config.limits, where)
    _check_memory(config, where)
    _check_units(config, where)


def _check_limits(limits: NdlLimits, where: str) -> None:
    for name, (low, high) in _LIMIT_RANGES.items():
        value = getattr(limits, name)
        _require(low <= value <= high, where, f"limits.{name}", value, f"{low}..{high}")
    strides = limits.conv_strides
    _require(1 in strides and min(strides) >= 1, where, "limits.conv_strides", strides, "to contain 1, all >= 1")
    _require(max(strides) <= 255, where, "limits.conv_strides", strides, "at most 255 each")


def _check_memory(config: NpuConfig, where: str) -> None:
    _require(config.slices <= 16, where, "slices", config.slices, "at most 16")
    slots = 2 * config.nss_block_bytes
    _require(config.nss_block_bytes >= 64, where, "nss_block_bytes", config.nss_block_bytes, "at least 64")
    _require(config.lram_reserve >= slots, where, "lram_reserve", config.lram_reserve, f"two sequencer slots, {slots}")
    reach = 1 << config.limits.address_bits
    _require(config.lram_bytes <= reach, where, "lram_bytes", config.lram_bytes, f"at most {reach} (address_bits)")
    least = config.lram_reserve + config.slice_program_bytes
    _require(
        config.lram_bytes > least,
        where,
        "lram_bytes",
        config.lram_bytes,
        f"more than lram_reserve + slice_program_bytes = {least}",
    )
    _require(config.slice_program_bytes >= 512, where, "slice_program_bytes", config.slice_program_bytes, ">= 512")
    _require(
        0 < config.slice_config_bytes <= config.slice_program_bytes,
        where,
        "slice_config_bytes",
        config.slice_config_bytes,
        f"1..{config.slice_program_bytes} (slice_program_bytes)",
    )
    _require(
        config.lram_bytes % config.lram_word == 0,
        where,
        "lram_bytes",
        config.lram_bytes,
        f"a multiple of lram_word = {config.lram_word}",
    )
    end = config.xram_base + config.xram_bytes
    _require(end <= 1 << 32, where, "xram_bytes", config.xram_bytes, f"at most {(1 << 32) - config.xram_base}")
    _require(
        config.xram_base % config.xram_page == 0,
        where,
        "xram_base",
        config.xram_base,
        f"a multiple of xram_page = {config.xram_page}",
    )


def _check_units(config: NpuConfig, where: str) -> None:
    _require(math.isfinite(config.dma_peak) and config.dma_peak > 0, where, "dma_peak", config.dma_peak, "above 0")
    _require(0 < config.dma_factor <= 1, where, "dma_factor", config.dma_factor, "in (0, 1]")
    _require(config.dma_mtu <= 7, where, "dma_mtu", config.dma_mtu, "0..7")
    # The vector width of int32 x int8 with 16 parallel weights must stay at least one element.
    _require(config.data_vector >= 16, where, "data_vector", config.data_vector, "at least 16")
    _require(config.data_vector <= 1024, where, "data_vector", config.data_vector, "at most 1024")
    _require(config.data_bus >= config.data_vector, where, "data_bus", config.data_bus, ">= data_vector")
    _require(config.weight_bus >= 4, where, "weight_bus", config.weight_bus, "at least 4")
    _require(config.bias_bus >= 8, where, "bias_bus", config.bias_bus, "one bias pair, 8")
    _require(config.result_bus >= 4, where, "result_bus", config.result_bus, "at least 4")
    _require(config.alu_groups <= 16, where, "alu_groups", config.alu_groups, "at most 16")
    needed = config.alu_groups * config.data_vector
    _require(
        config.accumulators >= needed,
        where,
        "accumulators",
        config.accumulators,
        f"one a lane of each group, alu_groups x data_vector = {needed}",
    )
    _require(config.table_entries == 512, where, "table_entries", config.table_entries, "512 (9-bit table index)")


def _require(holds: bool, where: str, name: str, value: object, limit: str) -> None:
    if not holds:
        raise HardwareConfigError(
            f"no machine has {name} = {value}",
            where=where,
            why=f"{name} is {value}, required: {limit}",
            remedy=f"change {name} or the number it depends on",
            details={"field": name, "value": value, "required": limit},
        )


def _reject_unknown(data: Mapping[str, Any], kind: type, where: str) -> None:
    known = [field.name for field in dataclasses.fields(kind)]
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise HardwareConfigError(
                f"the hardware description has no field {key!r}",
                where=where,
                why=f"the nearest known field is {near[0]!r}",
                remedy="correct the key or leave it out",
                details={"key": str(key), "nearest": near[0]},
            )
