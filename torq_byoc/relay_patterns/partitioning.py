"""Cut a Relax module into what runs on the NPU and what stays on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Call, GlobalVar
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.transform import FuseOpsByPattern, FusionPattern, MergeCompositeFunctions, PatternCheckContext

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns.chains import CHAIN, group_chains
from torq_byoc.relay_patterns.coverage import CpuOp, call_key, cpu_ops
from torq_byoc.relay_patterns.group import GROUP, group_origin, refusal_reasons
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
            float32 operators in bf16.
        config: the machine.

    Returns:
        The partitioned module with its coverage.
    """
    module = normalize(module)
    if precision == "quantized":
        chain = pattern_named(CHAIN)
        module = group_chains(module, lambda f: not refusal_reasons(chain, View.of_function(f), config))
    refusals: dict[str, str] = {}
    idle: set[Call] = set()
    while True:
        matcher = _Matcher(precision, config, refusals, idle)
        merged = MergeCompositeFunctions()(FuseOpsByPattern(matcher.patterns(), bind_constants=True)(module))
        useless = [matcher.roots[group] for group in _idle_groups(merged)]
        if not useless:
            return _described(_renamed(merged), refusals, precision)
        idle.update(useless)
        refusals.update((call_key(call), "data movement between CPU operators") for call in useless)


class _Matcher:
    """The pattern tables of one precision, with a memory of what was matched and what was refused."""

    def __init__(self, precision: Precision, config: NpuConfig, refusals: dict[str, str], idle: set[Call]) -> None:
        self.roots: list[Call] = []
        self._precision: Precision = precision
        self._config = config
        self._refusals = refusals
        self._idle = idle

    def patterns(self) -> list[FusionPattern]:
        """Entries for ``FuseOpsByPattern``, highest priority first."""
        return [self._entry(pattern) for pattern in patterns_for(self._precision)]

    def _entry(self, pattern: Pattern) -> FusionPattern:
        graph = pattern.graph()

        def legal(context: PatternCheckContext) -> bool:
            if context.matched_expr in self._idle:
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


def _composites(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Function]]:
    """The groups of a partition, in order."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                yield binding.var, binding.value


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
    """Groups of partitions that only move data: not worth a trip to the NPU."""
    found: list[int] = []
    for function in _partitions(module).values():
        groups = [composite for _, composite in _composites(function)]
        if all(pattern_named(str(group.attrs["Composite"])).moves_only for group in groups):
            found += [int(group.attrs[GROUP]) for group in groups]
    return found


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
        symbol: tuple((group_origin(group), str(group.attrs["Composite"])) for _, group in _composites(function))
        for symbol, function in partitions.items()
    }
    left = [
        op
        for name, function in module.functions.items()
        if isinstance(function, relax.Function) and name.name_hint not in partitions
        for op in cpu_ops(function, tuple(partitions), refusals, precision)
    ]
    return PartitionedModule(module, tuple(partitions), tuple(left), npu)
