"""The host part of a compiled model, step by step: operators on the CPU target, and what crosses to programs.

The host module that the partitioned model asks for is made anew.  Every step of the stored one is held against the step
of the same name there, on the values that it really had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tvm

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.programs.host_steps import HostSteps, Step, Value, flat
from torq_byoc.accuracy.programs.intent import layer_name
from torq_byoc.accuracy.programs.tile_values import bits
from torq_byoc.accuracy.stages import Stages
from torq_byoc.compiled_model import program_reference
from torq_byoc.errors import ProgramFormatError
from torq_byoc.frontend import onnx_node_name
from torq_byoc.host_module import deserialize, serialize, with_runtime_calls

RunPartition = Callable[[str, list[np.ndarray]], list[np.ndarray] | None]
"""Runs the program of a symbol on arrays in order; None where it cannot be run to its end."""


@dataclass(frozen=True, eq=False)
class HostRun:
    """One run of a host module.

    Attributes:
        deviations: of the host's own steps and of what crosses the border.
        outputs: of the model; None when the run could not be finished.
    """

    deviations: tuple[Deviation, ...]
    outputs: list[np.ndarray] | None


class HostCheck:
    """Holds the host module of a compiled model against that of its partitioned module.

    Args:
        stages: of a model with operators on the host.

    Attributes:
        meant, found: steps of the partitioned module's host part, and of the stored one.
        nodes: ONNX nodes by step.
        symbols: of partitions by the reference with which the stored module calls their programs.
        graphs: of partitions by symbol.

    Raises:
        ProgramFormatError: the stored module cannot be read or built.
    """

    def __init__(self, stages: Stages) -> None:
        module = with_runtime_calls(stages.parted.module, {symbol: symbol.encode() for symbol in stages.graphs})
        self.meant = HostSteps(deserialize(serialize(module)))
        self.found = HostSteps(deserialize(stages.compiled.host))
        self.nodes = _node_names(module, self.meant)
        self.symbols = {program_reference(p.blob): p.facts.symbol for p in stages.compiled.partitions}
        self.graphs = stages.graphs

    def run(self, arguments: list[np.ndarray], run_partition: RunPartition) -> HostRun:
        """Run the stored module.

        Args:
            arguments: the model's inputs in order.
            run_partition: runs a program, and finds its faults.
        """
        run = _Run(self, dict(zip(self.found.parameters, arguments, strict=True)), run_partition)
        finished = run.goes_through()
        return HostRun(tuple(run.deviations), self.found.results(run.values) if finished else None)


@dataclass(eq=False)
class _Run:
    """One run of the stored module on its way.

    Attributes:
        check: the two modules.
        values: of parameters and steps so far.
        run_partition: runs a program.
        deviations: found so far.
    """

    check: HostCheck
    values: dict[str, Value]
    run_partition: RunPartition
    deviations: list[Deviation] = field(default_factory=list)

    def goes_through(self) -> bool:
        """Run all steps; False when one of them has no value to go on with."""
        meant = {step.name: step for step in self.check.meant.steps}
        for step in self.check.found.steps:
            try:
                value = self._value(step, meant.pop(step.name, None))
            except ProgramFormatError as error:
                self._note(step.name, "an operand of another type", f"{error.where}: {error.why}")
                return False
            if value is None:
                return False
            self.values[step.name] = value
        for name in meant:
            self._note(name, "a step is left out", f"the host lacks {name}")
        return True

    def _value(self, step: Step, wanted: Step | None) -> Value | None:
        """The value of a step; None where there is nothing to go on with."""
        if step.program is not None:
            return self._called(step, step.program, wanted)
        found = self.check.found.run(step, self.values)
        if wanted is None:
            return found  # one too many: whether that matters shows in what reads it
        if wanted.program is not None:
            raise ProgramFormatError("the host has an operator in place of a program", where=step.name)
        try:
            expected = self.check.meant.run(wanted, self.values)
        except (ProgramFormatError, KeyError) as error:
            self._note(step.name, "an operand of another type", str(error))
            return found
        if difference := _difference(found, expected):
            self._note(step.name, "an operator computes something else", difference)
        return found

    def _called(self, step: Step, program: bytes, wanted: Step | None) -> Value | None:
        """The results of a program; operands at the border that are not those of the partitioned module."""
        symbol = self.check.symbols.get(program, "")
        if not symbol or wanted is None or wanted.program != symbol.encode():
            self._note(step.name, "another program", "the host calls a program of another part")
            return None
        found, graph = self.check.found, self.check.graphs[symbol]
        arrays = [np.asarray(found.lookup(self.values, name)) for name in step.arguments]
        for name, array, source in zip(graph.inputs, arrays, wanted.arguments, strict=True):
            if difference := _difference(array, found.lookup(self.values, source)):
                reader = next((layer_name(node) for node in graph.nodes if name in node.inputs), symbol)
                cause = _border_cause(difference)
                self.deviations.append(Deviation(Stage.HOST, reader, name, True, cause, difference))
                if "type" in difference or "shape" in difference:
                    return None
        results = self.run_partition(symbol, arrays)
        if results is None:
            return None
        return results if len(results) > 1 else results[0]

    def _note(self, step: str, cause: str, detail: str) -> None:
        node = self.check.nodes.get(step, step)
        self.deviations.append(Deviation(Stage.HOST, node, step, True, cause, detail))


def _node_names(module: tvm.IRModule, steps: HostSteps) -> dict[str, str]:
    """Step -> ONNX node; the text of a host module has the order of its steps, but no node names."""
    values = (binding.value for block in module["main"].body.blocks for binding in block.bindings)
    calls = [value for value in values if isinstance(value, tvm.ir.Call)]
    pairs = zip(steps.steps, calls, strict=True)
    return {step.name: name for step, call in pairs if (name := onnx_node_name(call))}


def _difference(found: Value, expected: Value) -> str:
    """How two values differ; empty when they are the same to the last bit."""
    for left, right in zip(flat(found), flat(expected), strict=False):
        if left.dtype != right.dtype:
            return f"type {left.dtype} where {right.dtype} is meant"
        if left.shape != right.shape:
            return f"shape {list(left.shape)} where {list(right.shape)} is meant"
        if left.size and (wrong := int(np.count_nonzero(bits(left) != bits(right)))):
            return f"{wrong} of {left.size} elements are not what is meant"
    return ""


def _border_cause(difference: str) -> str:
    return "boundary type wrong" if difference.startswith("type") else "operand at the border wrong"
