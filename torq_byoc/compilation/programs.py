"""From a partition to a verified program: the fastest candidate, verified, in its container."""

from __future__ import annotations

from tvm import relax

from torq_byoc.codegen.generate import GeneratedProgram
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.compiled_model import Layer, Partition, PartitionFacts
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.container import pack_container
from torq_byoc.npu_model.verifier import verify
from torq_byoc.relay_patterns import lower_partition
from torq_byoc.schedules.scheduled import Schedule


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
    candidate = fastest_candidate(graph, options, clock)
    plan, generated = candidate.schedule, candidate.generated
    if options.observe:
        for level, text in candidate.levels:
            options.observe(level, text)
    for entry in generated.ledger:
        clock.record_pass(entry.name, entry.seconds)
    if not options.keep_refused:
        with clock.stage("verify"):
            verify(generated.program, generated.steps)
    facts = PartitionFacts(
        symbol=symbol,
        lram_peak=generated.lram_peak,
        layers=_layers(graph, plan, generated),
        passes=tuple((entry.name, entry.saved) for entry in generated.ledger),
        decisions=plan.record.dumps(),
    )
    return Partition(facts, pack_container(generated.program.to_sections()))


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
