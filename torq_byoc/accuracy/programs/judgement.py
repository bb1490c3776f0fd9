"""What a run under watch says of every layer: which are wrong by themselves and why, and which inherit that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.programs.intent import layer_name
from torq_byoc.accuracy.programs.ledger import Finding
from torq_byoc.accuracy.programs.task_faults import is_misplaced, task_fault
from torq_byoc.accuracy.programs.tile_values import boxed, differing
from torq_byoc.accuracy.programs.watch import CallRecord, Watch
from torq_byoc.codegen.programs import invocation_tasks
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.portion import region_of
from torq_byoc.npu_model.blas import single_threaded
from torq_byoc.npu_model.encoding import decode_slice_program


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is to be said once a program has run.

    Attributes:
        watch: has looked on.
        reference: every tensor of the graph by the integer reference.
    """

    watch: Watch
    reference: Mapping[str, np.ndarray]

    def local(self, known: Iterable[Finding]) -> Iterator[Finding]:
        """Layers that make something else of their inputs than their operators do."""
        stopped = {finding.node for finding in known if finding.job == self.watch.ledger.job and not finding.tensor}
        for node in self.watch.graph.nodes:
            if node.op not in ALIAS_OPS and node.name not in stopped:
                yield from self._of_node(node)

    def _of_node(self, node: Node) -> Iterator[Finding]:
        wrong = self._wrong(node)
        calls = [record for record in self.watch.calls.values() if record.invocation.node == node.name]
        for record in calls:
            if record.excused or self._read_disputed(node, record):
                boxed(wrong, record.invocation.region)[...] = False
        if not wrong.any():
            return
        count = f"{int(wrong.sum())} of {wrong.size} elements"
        suspects = [record for record in calls if boxed(wrong, record.invocation.region).any()]
        faults = [fault for record in suspects if (fault := self._of_call(node, record, count))]
        if suspects:
            yield faults[0] if faults else self._of_kernel(node, suspects[0], count)
        elif not any(finding.node == node.name for finding in self.watch.ledger.findings):
            detail = f"{count} are not what the operator makes of its operands, and no task computes them"
            yield Finding(self.watch.ledger.job, node.name, node.output, Stage.TILING, "lies in another place", detail)

    def _wrong(self, node: Node) -> np.ndarray:
        """Elements of a layer's result that are not its operator's, given the inputs that it had."""
        made = self.watch.made
        operands = [self._settled(name) for name in node.inputs]
        with single_threaded(), np.errstate(all="ignore"):
            expected = kernel_for(node.op).reference(self.watch.graph, node, operands)
        found = made.values[node.output]
        return made.known[node.output] & (differing(found, expected) | made.disputed[node.output])

    def _read_disputed(self, node: Node, record: CallRecord) -> bool:
        """Whether a call may have read elements that were made twice, differently."""
        kernel, call = kernel_for(node.op), record.invocation
        return any(
            self.watch.made.disputed[node.inputs[position]].any()
            and boxed(
                self.watch.made.disputed[node.inputs[position]],
                region_of(kernel, self.watch.graph, node, position, call.region, call.portion),
            ).any()
            for position in kernel.tensor_inputs(self.watch.graph, node)
        )

    def _settled(self, tensor: str) -> np.ndarray:
        """A tensor as it was made; elements that nobody made as they should be."""
        made = self.watch.made
        if made.known[tensor].all():
            return made.values[tensor]
        return np.where(made.known[tensor], made.values[tensor], self.reference[tensor])

    def _of_call(self, node: Node, record: CallRecord, count: str) -> Finding | None:
        """The fault in the tasks of a call; None when they are what its kernel gives."""
        intent = self.watch.intent
        tasks = invocation_tasks(intent.graph, node, intent.program.config, record.invocation, intent.address)
        for op, code in record.runs:
            fault = task_fault(decode_slice_program(code), tasks[slice(*op.tasks)])
            if fault is None:
                continue
            stage, cause, detail = fault.stage, fault.cause, fault.detail
            if self.watch.ledger.lacks_load(op.program):
                stage, cause, detail = Stage.TILING, "a stale program", "the slice ran a program of another call"
            return Finding(record.completed, node.name, node.output, stage, cause, f"{count}; {detail}")
        return None

    def _of_kernel(self, node: Node, record: CallRecord, count: str) -> Finding:
        """A kernel gives tasks that do not compute its operator: in another place, or something else."""
        intent, call = self.watch.intent, record.invocation
        output = call.output.at(intent.address) if call.output.buffer >= 0 else None
        tasks = [task for _, code in record.runs for task in decode_slice_program(code)]
        misplaced = output is not None and is_misplaced(tasks, output, call.region)
        stage = Stage.TILING if misplaced else Stage.CODE_GENERATION
        detail = f"{count} differ although every task is the one that the kernel gives"
        return Finding(record.completed, node.name, node.output, stage, "kernel wrong", detail)

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
