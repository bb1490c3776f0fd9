"""The simulated program held against the integer reference, layer by layer and task by task.

Integers are held to the last bit, bf16 to one unit in the last place, in which the order of sums may differ.  Every
layer is judged on the inputs that it really had: the first layer that makes something else of them than its operator is
wrong by itself (local), those after it that only pass it on inherit it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.host_check import HostCheck
from torq_byoc.accuracy.intent import Intent, align, intent_of
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.task_faults import task_fault
from torq_byoc.accuracy.tile_values import Assembled, bits, boxed
from torq_byoc.accuracy.watch import CallRecord, Finding, Watch
from torq_byoc.codegen.hl import SliceRun
from torq_byoc.codegen.programs import invocation_tasks
from torq_byoc.errors import ProgramFormatError, VerificationError
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.blas import single_threaded
from torq_byoc.npu_model.container import unpack_container
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import decode_slice_program
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import check

MOST_ULPS = 1
"""Units in the last place by which bf16 results may differ from the reference: only the order of sums is free."""

_RULE_STAGES = {
    rule: Stage.TILING for rule in ("bounds", "undefined", "order", "engine", "partial", "output", "buffer")
}
"""What breaking a rule of the verifier means; others are about the form of programs."""


def program_deviations(stages: Stages, feeds: Mapping[str, np.ndarray]) -> tuple[Deviation, ...]:
    """Where the compiled model leaves the integer reference of its operator graphs, on one sample.

    Args:
        stages: of the model.
        feeds: an array for every model input.

    Returns:
        As ``ProgramCheck.deviations``.

    Raises:
        TorqError: the compiled model is not one of these stages' model.
    """
    return ProgramCheck(stages).deviations(feeds)


class ProgramCheck:
    """Checks the compiled model of some stages on one sample after the other.

    Args:
        stages: of the model.

    Raises:
        TorqError: the compiled model is not one of these stages' model.
    """

    def __init__(self, stages: Stages) -> None:
        self._inputs = tuple(spec.name for spec in stages.compiled.facts.inputs)
        decisions = stages.compiled.decisions()
        self._intents = {symbol: intent_of(graph, decisions, stages.options) for symbol, graph in stages.graphs.items()}
        self._programs = {
            partition.facts.symbol: Program.from_sections(unpack_container(partition.blob))
            for partition in stages.compiled.partitions
        }
        self._host = None if stages.compiled.facts.direct else HostCheck(stages)
        self._found: list[Deviation] = []

    def deviations(self, feeds: Mapping[str, np.ndarray]) -> tuple[Deviation, ...]:
        """What is wrong on one sample.

        Returns:
            Deviations that arise in a layer (local) in the order in which they do, one a layer, then those of layers
            that inherit them; empty when the model computes what its graphs mean.
        """
        self._found = []
        arguments = [np.asarray(feeds[name]) for name in self._inputs]
        if self._host is None:
            (symbol,) = self._intents
            self._partition(symbol, arguments)
        else:
            self._found += self._host.run(arguments, self._partition).deviations
        return tuple(sorted(self._found, key=lambda deviation: not deviation.local))

    def _partition(self, symbol: str, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
        """Run and check one program; bf16 tensors are float32 on the host."""
        intent, program = self._intents[symbol], self._programs[symbol]
        graph = intent.graph
        inputs = {
            name: array.reshape(graph.tensors[name].shape).astype(graph.tensors[name].dtype.numpy, copy=False)
            for name, array in zip(graph.inputs, arrays, strict=True)
        }
        checked = check_partition(intent, program, inputs)
        self._found += checked.deviations
        if checked.outputs is None:
            return None
        values = [checked.outputs[name] for name in graph.outputs]
        return [value.astype(np.float32) if value.dtype == DType.BF16.numpy else value for value in values]


@dataclass(frozen=True, eq=False)
class Checked:
    """What the check of one program gives.

    Attributes:
        deviations: those that arise in the program first, in the order in which they do, then those that are inherited.
        outputs: of the program by name; None when it could not be run to its end.
    """

    deviations: tuple[Deviation, ...]
    outputs: Mapping[str, np.ndarray] | None


def check_partition(intent: Intent, program: Program, inputs: Mapping[str, np.ndarray]) -> Checked:
    """Where a program leaves what its graph means, on given inputs.

    Args:
        intent: what it is meant to do.
        program: the program as it is; it need not be safe to run.
        inputs: an array for every input of the graph.
    """
    deviations = tuple(_binding_deviations(intent.graph, program))
    alignment = align(intent, program)
    if deviations or alignment is None:
        return Checked(deviations or (_unlike(intent, program),), None)
    watch = Watch(intent, alignment, Assembled.of(intent.graph, inputs))
    findings, outputs = _run(watch, program, inputs)
    broken = _broken_rules(program)
    for tensor in intent.graph.tensors:
        watch.made.complete(tensor)
    judged = _Judgement(watch, evaluate(intent.graph, inputs))
    local = [*findings, *judged.local(findings)]
    local.sort(key=lambda finding: finding.job)
    if not local:
        local += broken
    return Checked(tuple(judged.deviations(local)), outputs)


def ulps(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance of bf16 numbers in units of the last place; 0 between two NaN."""
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return np.where(both_nan, 0, np.abs(_ordered(found) - _ordered(expected)))


def _ordered(values: np.ndarray) -> np.ndarray:
    numbers = np.ascontiguousarray(values).view(np.int16).astype(np.int32)
    return np.where(numbers < 0, -32768 - numbers, numbers)


def differing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Which elements of a program's result are not those of the reference."""
    if found.dtype == DType.BF16.numpy:
        return ulps(found, expected) > MOST_ULPS
    return bits(found) != bits(expected)


def layer_name(node: Node) -> str:
    """The node of the prepared model that an operator gives the result of."""
    return node.origin.rsplit("+", 1)[-1] or node.name


def _binding_deviations(graph: OpGraph, program: Program) -> Iterator[Deviation]:
    """Types and units at the border to the host that are not those of the graph."""
    for names, bindings in ((graph.inputs, program.inputs), (graph.outputs, program.outputs)):
        for name, binding in zip(names, bindings, strict=True):
            info = graph.tensors[name]
            for what, found, wanted in (
                ("type", binding.dtype, info.dtype),
                ("shape", binding.shape, info.shape),
                ("scale", binding.scale, info.scale),
                ("zero point", binding.zero_point, info.zero_point),
            ):
                if found != wanted:
                    detail = f"the program has {found}, the graph {wanted}"
                    yield Deviation(
                        Stage.HOST, _border_layer(graph, name), name, True, f"boundary {what} wrong", detail
                    )


def _border_layer(graph: OpGraph, tensor: str) -> str:
    """The layer that makes a tensor; of an input, the first one that reads it."""
    makers = [node for node in graph.nodes if node.output == tensor]
    return layer_name((makers or [node for node in graph.nodes if tensor in node.inputs])[0])


def _unlike(intent: Intent, program: Program) -> Deviation:
    label = next((job.label for job in program.jobs if job.label), "")
    detail = f"{len(program.jobs)} jobs, a compilation with its decisions gives {len(intent.program.jobs)} others"
    return Deviation(Stage.CODE_GENERATION, label, "", True, "another program", detail)


def _run(
    watch: Watch, program: Program, inputs: Mapping[str, np.ndarray]
) -> tuple[list[Finding], Mapping[str, np.ndarray] | None]:
    """Run a program under watch: findings and outputs.  Where it cannot go on, that is the last finding."""
    try:
        results = Simulator(program).run(inputs, watch)
    except (VerificationError, ProgramFormatError) as error:
        op = watch.op_of(watch.job)
        stage = Stage.TILING if isinstance(error, VerificationError) else Stage.CODE_GENERATION
        node = op.node if op else ""
        return [*watch.findings, Finding(watch.job, node, "", stage, error.what, error.why)], None
    return [*watch.findings, *_unfetched(watch, program, results)], results


def _unfetched(watch: Watch, program: Program, results: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Outputs that were computed and never reached their place."""
    made = watch.made
    for name in watch.graph.outputs:
        made.complete(name)
        known = made.known[name]
        wrong = known & (bits(results[name]) != bits(made.values[name]))
        root = watch.graph.storage_roots()[name]
        if wrong.any() and not any(finding.tensor in (name, root) for finding in watch.findings):
            producer = next((node.name for node in watch.graph.nodes if node.output == root), "")
            detail = f"{int(wrong.sum())} of {wrong.size} elements of {name} in XRAM are not what was computed"
            yield Finding(len(program.jobs), producer, name, Stage.TILING, "a result that is not stored", detail)


def _broken_rules(program: Program) -> list[Finding]:
    """What the verifier has against a program."""
    return [
        Finding(
            len(program.jobs) if violation.job is None else violation.job,
            "" if violation.job is None or violation.job >= len(program.jobs) else program.jobs[violation.job].label,
            "",
            _RULE_STAGES.get(violation.rule, Stage.CODE_GENERATION),
            f"breaks the rule {violation.rule!r}",
            violation.message,
        )
        for violation in check(program)[:1]
    ]


@dataclass(frozen=True, eq=False)
class _Judgement:
    """What a run under watch says of every layer."""

    watch: Watch
    reference: Mapping[str, np.ndarray]

    def local(self, known: Iterable[Finding]) -> Iterator[Finding]:
        """Layers that make something else of their inputs than their operators do."""
        stopped = {finding.node for finding in known if finding.job == self.watch.job and not finding.tensor}
        for node in self.watch.graph.nodes:
            if node.op not in ALIAS_OPS and node.name not in stopped:
                yield from self._of_node(node)

    def _of_node(self, node: Node) -> Iterator[Finding]:
        wrong = self._wrong(node)
        for region in self.watch.excused_regions(node.name):
            boxed(wrong, region)[...] = False
        if not wrong.any():
            return
        count = f"{int(wrong.sum())} of {wrong.size} elements"
        for record in self.watch.calls.values():
            if record.invocation.node == node.name and boxed(wrong, record.invocation.region).any():
                yield self._of_call(node, record, count)
                return
        if not any(finding.node == node.name for finding in self.watch.findings):
            detail = f"{count} are not what the operator makes of its operands, and no task computes them"
            yield Finding(self.watch.job, node.name, node.output, Stage.TILING, "lies in another place", detail)

    def _wrong(self, node: Node) -> np.ndarray:
        """Elements of a layer's result that are not its operator's, given the inputs that it had."""
        made = self.watch.made
        operands = [self._settled(name) for name in node.inputs]
        with single_threaded(), np.errstate(all="ignore"):
            expected = kernel_for(node.op).reference(self.watch.graph, node, operands)
        found = made.values[node.output]
        disputed = made.disputed[node.output] if found.dtype != DType.BF16.numpy else False
        return made.known[node.output] & (differing(found, expected) | disputed)

    def _settled(self, tensor: str) -> np.ndarray:
        """A tensor as it was made; elements that nobody made as they should be."""
        made = self.watch.made
        if made.known[tensor].all():
            return made.values[tensor]
        return np.where(made.known[tensor], made.values[tensor], self.reference[tensor])

    def _of_call(self, node: Node, record: CallRecord, count: str) -> Finding:
        """The fault in the tasks of a call."""
        intent = self.watch.intent
        tasks = invocation_tasks(intent.graph, node, intent.program.config, record.invocation, intent.address)
        for op, code in record.runs:
            meant = tasks[slice(*op.tasks)]
            fault = task_fault(decode_slice_program(code), meant)
            if fault is None:
                continue
            stage, cause, detail = fault.stage, fault.cause, fault.detail
            if self._is_another_program(op, code, meant):
                stage, cause, detail = Stage.TILING, "a stale program", "the slice ran a program of another call"
            return Finding(record.completed, node.name, node.output, stage, cause, f"{count}; {detail}")
        detail = f"{count} differ although every task is the one that the kernel gives"
        return Finding(record.completed, node.name, node.output, Stage.CODE_GENERATION, "kernel wrong", detail)

    def _is_another_program(self, op: SliceRun, code: bytes, meant: list[SliceTask]) -> bool:
        """Whether a slice ran what was meant for another call."""
        absent = (self.watch.intent.jobs[job] for job in self.watch.alignment.absent)
        loads = [other for other in absent if other is not None and not isinstance(other, SliceRun)]
        return any(other.target.buffer == op.program for other in loads)

    def deviations(self, findings: list[Finding]) -> Iterator[Deviation]:
        """Findings one a layer, then the layers that inherit them."""
        graph, nodes = self.watch.graph, self.watch.intent.nodes
        first: dict[str, Finding] = {}
        for finding in findings:
            first.setdefault(finding.node, finding)
        for name, finding in first.items():
            layer = layer_name(nodes[name]) if name in nodes else name
            tensor = finding.tensor or (nodes[name].output if name in nodes else "")
            yield Deviation(finding.stage, layer, tensor, True, finding.cause, finding.detail)
        yield from self._inherited(graph, first)

    def _inherited(self, graph: OpGraph, first: Mapping[str, Finding]) -> Iterator[Deviation]:
        """Layers after those at fault whose results differ from the reference's."""
        made = self.watch.made
        fault = {nodes.output: first[nodes.name] for nodes in graph.nodes if nodes.name in first}
        for node in graph.nodes:
            before = next((fault[name] for name in node.inputs if name in fault), None)
            if node.name in first or before is None:
                continue
            differs = made.known[node.output] & differing(made.values[node.output], self.reference[node.output])
            if differs.any():
                fault[node.output] = before
                if node.op not in ALIAS_OPS:
                    detail = f"{int(differs.sum())} of {differs.size} elements, from {before.node}"
                    yield Deviation(before.stage, layer_name(node), node.output, False, "", detail)
