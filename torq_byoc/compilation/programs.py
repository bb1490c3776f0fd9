"""From a partition to a verified program: schedule, generate, verify."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tvm import relax

from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.codegen.hl import CallProgram, RunProgram
from torq_byoc.codegen.text import format_program
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compiled_model import Layer, Partition, PartitionFacts
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.container import pack_container
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.npu_model.verifier import verify
from torq_byoc.relay_patterns import lower_partition
from torq_byoc.schedules.fusion.search import PricedGroups
from torq_byoc.schedules.node_tiles import scheduled_function
from torq_byoc.schedules.plan import Schedule, schedule
from torq_byoc.schedules.record import DecisionRecord
from torq_byoc.schedules.techniques import Techniques
from torq_byoc.schedules.tensor_expressions import defined_ops

BUDGETS: tuple[float, ...] = (1.0, 0.9, 0.8, 0.65, 0.5)
"""Shares of the LRAM that a schedule may plan with, tried until its tiles can be laid out."""
WASTEFUL_BUDGETS: tuple[float, ...] = (0.35, 0.25)
"""More shares, for programs without the passes that save the LRAM what the schedule counts on."""
PLAUSIBLE = 1.1
"""Estimate of a rival schedule over the cycles of the chosen one, up to which it may turn out to be faster."""


def compile_function(symbol: str, function: relax.Function, options: Options | None = None) -> Partition:
    """Compile one partition of a module to a verified program.

    Raises:
        LramOverflowError: an operator cannot be tiled into the LRAM.
        VerificationError: a defect of ours; the program is not safe.
    """
    options = options or Options()
    return compile_graph(symbol, lower_partition(function, options.config), options)


def compile_graph(symbol: str, graph: OpGraph, options: Options, clock: StageClock | None = None) -> Partition:
    """Schedule, generate and verify the program of an operator graph (see ``compile_function``)."""
    clock = clock or StageClock()
    plan, generated = schedule_and_generate(graph, options, clock)
    for entry in generated.ledger:
        clock.record_pass(entry.name, entry.seconds)
    with clock.stage("verify"):
        verify(generated.program)
    facts = PartitionFacts(
        symbol=symbol,
        lram_peak=generated.lram_peak,
        layers=_layers(graph, plan, generated),
        passes=tuple((entry.name, entry.saved) for entry in generated.ledger),
        decisions=plan.record.dumps(),
    )
    return Partition(facts, pack_container(generated.program.to_sections()))


def schedule_and_generate(graph: OpGraph, options: Options, clock: StageClock) -> tuple[Schedule, GeneratedProgram]:
    """The schedule that the search prefers, or the same search's without fused groups where that simulates faster.

    Groups that a record fixes are not doubted.
    """
    chosen = _laid_out(graph, options, clock)
    assert chosen is not None, "there is no limit to what it may cost"
    decisions = options.decisions or DecisionRecord()
    if not chosen[0].groups or decisions.groups is not None:
        return chosen
    cycles = _cycles(chosen[1], clock)
    alone = replace(options, decisions=replace(decisions, groups=()))
    try:
        rival = _laid_out(graph, replace(alone, observe=None), clock, PLAUSIBLE * cycles)
    except LramOverflowError:
        return chosen
    if rival is None or _cycles(rival[1], clock) >= cycles:
        return chosen
    return (_laid_out(graph, alone, clock) if options.observe else rival) or rival


def _cycles(generated: GeneratedProgram, clock: StageClock) -> int:
    with clock.stage("generate"):
        return simulate_timeline(generated.program).total_cycles


def _laid_out(
    graph: OpGraph, options: Options, clock: StageClock, limit: float = float("inf")
) -> tuple[Schedule, GeneratedProgram] | None:
    """Schedule with as much LRAM as leads to a layout; in the last resort without fused groups (effort 0).

    Returns:
        None when the estimate of the schedule is above the limit.
    """

    def observe(name: str, program: CallProgram | RunProgram) -> None:
        options.show(f"torq_hl/{name}", lambda: format_program(program))

    decisions = None
    if options.decisions is not None:
        decisions = options.decisions.restricted_to({node.name for node in graph.nodes}, graph.tensors)
    budgets = (*BUDGETS, *WASTEFUL_BUDGETS) if options.disabled_passes else BUDGETS
    techniques = Techniques.without(options.disabled_passes)
    attempts = [*((budget, options.effort) for budget in budgets), (budgets[-1], 0)]
    priced: PricedGroups = {}
    for budget, effort in attempts:
        with clock.stage("schedule"):
            plan = schedule(
                graph,
                options.config,
                effort=effort,
                overrides=decisions,
                budget=budget,
                techniques=techniques,
                priced=priced,
            )
        if plan.expected > limit:
            return None
        options.show("scheduled/tir", partial(_scheduled_text, graph, plan))
        try:
            with clock.stage("generate"):
                generated = generate(
                    graph,
                    plan,
                    options.config,
                    disabled=options.disabled_passes,
                    observe=observe if options.observe else None,
                )
            return plan, generated
        except LramOverflowError:
            if (budget, effort) == attempts[-1]:
                raise
    raise AssertionError("the last attempt either returns or raises")


def _layers(graph: OpGraph, plan: Schedule, generated: GeneratedProgram) -> tuple[Layer, ...]:
    """What reports show of each node, in the order of the schedule."""
    nodes = {node.name: node for node in graph.nodes}
    layers = []
    for entry in plan.nodes:
        node = nodes[entry.node]
        info = graph.tensors[node.output]
        layers.append(
            Layer(
                node=node.name,
                origin=node.origin,
                op=node.op,
                tiles=len(entry.tiles),
                macs=kernel_for(node.op).macs(graph, node),
                output_shape=info.shape,
                dtype=info.dtype.value,
                resident=node.output in plan.resident,
                estimate=float(entry.estimate),
                bytes=generated.layer_bytes.get(node.name, {}),
            )
        )
    return tuple(layers)


def _scheduled_text(graph: OpGraph, plan: Schedule) -> str:
    """The scheduled TIR function of every node, each under its decision and its cost."""
    nodes = {node.name: node for node in graph.nodes}
    parts = []
    for entry in plan.nodes:
        node = nodes[entry.node]
        parts.append(
            f"# {entry.node}: {entry.decision}, {len(entry.tiles)} tiles, {entry.estimate:.0f} cycles expected"
        )
        if node.op in defined_ops():
            parts.append(scheduled_function(graph, node, entry.on_its_own()).mod.script(show_meta=False))
    return "\n".join(parts) + "\n"
