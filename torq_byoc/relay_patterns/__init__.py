"""Pattern tables over Relax: what runs on the NPU, with reasons where it does not, and its operator graph.

``partition`` splits a module, ``lower_partitions`` turns its parts into ``kernels.graph.OpGraph``s,
``register`` puts the tables into TVM's own registry under the prefix "torq".  TVM is imported when one of
them is first used; ``composites`` and ``QuantParams`` need none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torq_byoc.relay_patterns.quant_params import QuantParams

if TYPE_CHECKING:
    from torq_byoc.relay_patterns.coverage import CpuOp
    from torq_byoc.relay_patterns.partition_lowering import lower_partition, lower_partitions
    from torq_byoc.relay_patterns.partitioning import PartitionedModule, partition
    from torq_byoc.relay_patterns.patterns import PATTERNS
    from torq_byoc.relay_patterns.registry import Pattern

__all__ = [
    "PATTERNS",
    "CpuOp",
    "PartitionedModule",
    "Pattern",
    "QuantParams",
    "lower_partition",
    "lower_partitions",
    "partition",
    "register",
]

_HOMES = {
    "PATTERNS": "patterns",
    "CpuOp": "coverage",
    "PartitionedModule": "partitioning",
    "Pattern": "registry",
    "lower_partition": "partition_lowering",
    "lower_partitions": "partition_lowering",
    "partition": "partitioning",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def register() -> None:
    """Register all patterns with TVM; a second call changes nothing."""
    from torq_byoc.relay_patterns.patterns import PATTERNS
    from torq_byoc.relay_patterns.registry import register as register_all

    register_all(PATTERNS)
