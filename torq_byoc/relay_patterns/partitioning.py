"""Cut a Relax module into what runs on the NPU and what stays on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import tvm
from tvm import relax
from tvm.ir import Call, GlobalVar
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.transform import FuseOpsByPattern, FusionPattern, MergeCompositeFunctions, PatternCheckContext

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns.chains import CHAIN, group_chains
from torq_byoc.relay_patterns.contents import Contents
from torq_byoc.relay_patterns.coverage import CpuOp, call_key, cpu_ops
from torq_byoc.relay_patterns.float_parameters import float_parameters
from torq_byoc.relay_patterns.group import GROUP, group_origin, refusal_reasons
from torq_byoc.relay_patterns.group_borders import group_borders
from torq_byoc.relay_patterns.normalize import normalize
from torq_byoc.relay_patterns.patterns import pattern_named, patterns_for
from torq_byoc.relay_patterns.registry import PREFIX, Pattern, Precision
from torq_byoc.relay_patterns.view import View


@dataclass(frozen=True)
class PartitionedModule:
    """A module whose NPU parts are functions of their own.

    Attributes:
        module: ``main`` and one function a partition (attributes ``Codegen="torq"`` and ``global_symbol``).
        partitions: global symbols of the partitions, in the order in which ``main`` calls them.
        cpu_ops: every operator left in ``main``, with its reason.
        npu_ops: for every partition, the ONNX nodes and the composite name of each group.
    """

    module: tvm.IRModule
    partitions: tuple[str, ...]
    cpu_ops: tuple[CpuOp, ...]
    npu_ops: Mapping[str, tuple[tuple[str, str], ...]]

    def function(self, symbol: str) -> relax.Function:
        """The function of a partition."""
        return self.module[symbol]


def partition(module: tvm.IRModule, precision: Precision, config: NpuConfig) -> PartitionedModule:
    """Split a module into NPU partitions and CPU operators.

    Args:
        module: from ``frontend.to_relax``; constants are still inline and quantize/dequantize unfolded.
        precision: "quantized" runs what stands between dequantize and quantize in integers; "bf16" runs
            float32 operators in bf16; "mixed" does both, each operator in integers where it can.
        config: the machine.

    Returns:
        The partitioned module with its coverage.
    """
    module = normalize(module)

    def accepted(composite: str, function: relax.Function) -> bool:
        return not refusal_reasons(pattern_named(composite), View.of_function(function), config)

    if precision != "bf16":
        module = group_chains(module, partial(accepted, CHAIN))
    refusals: dict[str, str] = {}
    idle: set[str] = set()
    while True:
        matcher = _Matcher(config, refusals, idle)
        if precision == "mixed":
            grouped = matcher.grouped(float_parameters(matcher.grouped(module, "quantized")), "bf16")
            grouped = group_borders(grouped, accepted)
        else:
            grouped = matcher.grouped(module, precision)
        merged = MergeCompositeFunctions()(grouped)
        useless = [matcher.roots[group] for group in _idle_groups(merged)]
        if not useless:
            return _described(_renamed(merged), refusals, precision)
        idle.update(map(_movement_key, useless))
        refusals.update((call_key(call), "data movement between CPU operators") for call in useless)


class _Matcher:
    """The pattern tables, with a memory of what was matched and what was refused."""

    def __init__(self, config: NpuConfig, refusals: dict[str, str], idle: set[str]) -> None:
        self.roots: list[Call] = []
        self._config = config
        self._refusals = refusals
        self._idle = idle

    def grouped(self, module: tvm.IRModule, precision: Precision) -> tvm.IRModule:
        """The module with what one arithmetic's patterns match in composite functions."""
        entries = [self._entry(pattern) for pattern in patterns_for(precision)]
        return FuseOpsByPattern(entries, bind_constants=True)(module)

    def _entry(self, pattern: Pattern) -> FusionPattern:
        graph = pattern.graph()

        def legal(context: PatternCheckContext) -> bool:
            if pattern.moves_only and _movement_key(context.matched_expr) in self._idle:
                return False
            if has_leaking_intermediate_variables(context):
                return False
            reasons = refusal_reasons(pattern, View.of_match(context), self._config)
            if reasons:
                self._refusals.setdefault(call_key(context.matched_expr), "; ".join(reasons))
            return not reasons

        def attributes(matched: Mapping[str, relax.Expr]) -> dict[str, int]:
            self.roots.append(matched["root"])
            return {GROUP: len(self.roots) - 1}

        return FusionPattern(pattern.name, graph, {"root": graph}, legal, attributes)


def _partitions(module: tvm.IRModule) -> dict[GlobalVar, relax.Function]:
    """The functions that TVM's merge made for us, in the order in which ``main`` calls them."""
    ours = {
        name: function
        for name, function in module.functions.items()
        if isinstance(function, relax.Function) and function.attrs and str(function.attrs.get("Codegen", "")) == PREFIX
    }
    order: dict[GlobalVar, relax.Function] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, Call) and expr.op in ours:
            order[expr.op] = ours[expr.op]

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return order


def _idle_groups(module: tvm.IRModule) -> list[int]:
    """Movements of partitions that compute nothing (borders are there for others): not worth a trip to the NPU."""
    found: list[int] = []
    for function in _partitions(module).values():
        groups = [(pattern_named(str(g.attrs["Composite"])), g) for g in Contents.of(function).groups.values()]
        if all(pattern.moves_only or pattern.precision == "mixed" for pattern, _ in groups):
            found += [int(group.attrs[GROUP]) for pattern, group in groups if pattern.moves_only]
    return found


def _movement_key(call: Call) -> str:
    """Identifies a movement in every round: rounds bind what it reads to other variables."""
    fixed = [argument for argument in call.args if not any(isinstance(part, relax.Var) for part in _parts(argument))]
    return f"{call_key(call)}|{call.attrs}|{fixed}"


def _parts(argument: relax.Expr) -> tuple[relax.Expr, ...]:
    return tuple(argument.fields) if isinstance(argument, relax.Tuple) else (argument,)


def _renamed(module: tvm.IRModule) -> tvm.IRModule:
    """Short, ordered names: torq_partition_0, torq_partition_1, ..."""
    partitions = _partitions(module)
    names = {old: GlobalVar(f"{PREFIX}_partition_{i}") for i, old in enumerate(partitions)}
    for old, new in names.items():
        relax.expr._update_type(new, old.ty)
    functions = {}
    for old, function in module.functions.items():
        if old in names:
            symbol = names[old].name_hint
            functions[names[old]] = function.with_attrs({"global_symbol": symbol})
        elif isinstance(function, relax.Function):
            functions[old] = _Renaming(names).visit_expr(function)
        else:
            functions[old] = function
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


@relax.expr_functor.mutator
class _Renaming(relax.PyExprMutator):
    """Replaces global variables."""

    def __init__(self, names: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self.names = names

    def visit_global_var_(self, op: GlobalVar) -> relax.Expr:
        """The new variable of a renamed function."""
        return self.names.get(op, op)


def _described(module: tvm.IRModule, refusals: Mapping[str, str], precision: Precision) -> PartitionedModule:
    partitions = {name.name_hint: function for name, function in _partitions(module).items()}
    npu = {
        symbol: tuple(
            (group_origin(group), str(group.attrs["Composite"])) for group in Contents.of(function).groups.values()
        )
        for symbol, function in partitions.items()
    }
    left = [
        op
        for name, function in module.functions.items()
        if isinstance(function, relax.Function) and name.name_hint not in partitions
        for op in cpu_ops(function, tuple(partitions), refusals, precision)
    ]
    return PartitionedModule(module, tuple(partitions), tuple(left), npu)
