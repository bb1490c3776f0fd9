"""What the compiler does with every ONNX operator, found by compiling a probe of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import onnx
from onnx import defs

from torq_byoc.errors import TorqError, UnsupportedOpError
from torq_byoc.frontend import prepare, to_relax
from torq_byoc.frontend.passes.expand_functions import EXPANDED
from torq_byoc.frontend.validator.operators import CONTRIBUTED
from torq_byoc.kernels.graph import ALIAS_OPS
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize import quantize_model
from torq_byoc.relay_patterns import PartitionedModule, lower_partition, partition
from torq_byoc.relay_patterns.patterns import pattern_named
from torq_byoc.report.operator_probes import NODE, PROBES, Probe

PRECISIONS = ("int8", "bf16")
REWRITTEN = ("QLinearConv", "QLinearMatMul", "QuantizeLinear", "DequantizeLinear")
"""Operators of quantized models: they become the integer form of what stands between them."""

INTEGER_PRODUCTS = ("ConvInteger", "MatMulInteger")
"""Products of integers that run on the NPU as they stand."""

WRITTEN_OUT = EXPANDED | {"DynamicQuantizeLinear", "MeanVarianceNormalization"}
"""Operators that ``prepare`` replaces by simpler ones before anything looks at them."""

_QUANTIZATION = frozenset({"quantize", "dequantize"})


@dataclass(frozen=True)
class Mapping:
    """Where an operator runs in one precision.

    Attributes:
        place: "npu" (one kernel, or none at all for what moves no data), "composition" (several NPU kernels),
            "cpu", "npu+cpu", or "none" when the model is refused.
        detail: kernels on the NPU, or the reason for the CPU.
        limits: what the pattern's legality check asks for.
    """

    place: str
    detail: str
    limits: str = ""


@dataclass(frozen=True)
class OperatorRow:
    """An ONNX operator with its mapping in every precision of ``PRECISIONS``."""

    op: str
    mappings: dict[str, Mapping]


def operator_table(progress: Callable[[str], None] | None = None) -> list[OperatorRow]:
    """All operators of the standard domain that have a probe, in name order; see ``unprobed`` for the rest."""
    rows = []
    for probe in sorted(PROBES, key=lambda probe: probe.op):
        if progress:
            progress(probe.op)
        rows.append(OperatorRow(probe.op, {precision: _mapping(probe, precision) for precision in PRECISIONS}))
    return rows


@dataclass(frozen=True)
class OtherOperators:
    """Standard operators without a probe, in name order.

    Attributes:
        on_cpu: TVM runs them on the CPU.
        defined: replaced by the simpler operators that ONNX defines them with.
        sized_by_data: computed when compiling, from constants, and refused at run time.
        missing: nothing can run them.
    """

    on_cpu: tuple[str, ...]
    defined: tuple[str, ...]
    sized_by_data: tuple[str, ...]
    missing: tuple[str, ...]


def unprobed() -> OtherOperators:
    """What becomes of the operators that ``operator_table`` leaves out."""
    from torq_byoc.frontend.converters.refusals import NEVER_COMPUTED, SIZED_BY_DATA
    from torq_byoc.frontend.importer import unsupported_operators

    probed = {probe.op for probe in PROBES}
    names = {schema.name for schema in defs.get_all_schemas() if schema.domain == ""} - probed
    names -= {*REWRITTEN, *INTEGER_PRODUCTS}
    defined, sized = names & WRITTEN_OUT, names & SIZED_BY_DATA
    graph = onnx.helper.make_graph([onnx.helper.make_node(name, [], ["y"], name) for name in names], "all", [], [])
    missing = NEVER_COMPUTED.union(unsupported_operators(onnx.helper.make_model(graph))) - defined - sized
    sorted_names = (tuple(sorted(group)) for group in (names - defined - sized - missing, defined, sized, missing))
    return OtherOperators(*sorted_names)


def table_data(rows: list[OperatorRow]) -> dict[str, Any]:
    """The table with everything that has no probe, ready for JSON."""
    others = unprobed()
    return {
        "operators": [asdict(row) for row in rows],
        "precisions": list(PRECISIONS),
        "rewritten": list(REWRITTEN),
        "contributed": sorted(CONTRIBUTED),
        "integer_products": list(INTEGER_PRODUCTS),
        "other_cpu": list(others.on_cpu),
        "defined": list(others.defined),
        "sized_by_data": list(others.sized_by_data),
        "unsupported": list(others.missing),
    }


def _mapping(probe: Probe, precision: str) -> Mapping:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _described(_parted(probe, precision))
    except UnsupportedOpError:
        return Mapping("none", "no conversion")
    except TorqError as error:
        return Mapping("none", error.what)


def _parted(probe: Probe, precision: str) -> PartitionedModule:
    model = prepare(probe.model())
    if precision == "bf16":
        return partition(to_relax(model), "bf16", NpuConfig())
    return partition(to_relax(quantize_model(model, probe.data(), precision=precision)), "quantized", NpuConfig())


def _described(parted: PartitionedModule) -> Mapping:
    kernels = [op for op in _kernels(parted) if op not in ALIAS_OPS]
    left = [op for op in parted.cpu_ops if _is_probe(op.node) and op.op not in _QUANTIZATION]
    groups = [name for symbol in parted.partitions for origin, name in parted.npu_ops[symbol] if _is_probe(origin)]
    if left:
        reasons = "; ".join(dict.fromkeys(op.reason for op in left))
        return Mapping("npu+cpu" if groups else "cpu", reasons)
    names = ", ".join(dict.fromkeys(kernels)) or "no data moves"
    limits = " ".join(dict.fromkeys(_limits(name) for name in groups))
    return Mapping("composition" if len(kernels) > 1 else "npu", names, limits)


def _kernels(parted: PartitionedModule) -> Iterator[str]:
    for symbol in parted.partitions:
        graph = lower_partition(parted.function(symbol), NpuConfig())
        yield from (node.op for node in graph.nodes if _is_probe(node.origin))


def _is_probe(node: str) -> bool:
    return any(part.startswith(NODE) for part in node.split("+"))


def _limits(composite: str) -> str:
    """The first line of the legality check's docstring."""
    check = pattern_named(composite).check
    text = (check.func if isinstance(check, partial) else check).__doc__ or ""
    return text.strip().splitlines()[0] if text.strip() else ""
