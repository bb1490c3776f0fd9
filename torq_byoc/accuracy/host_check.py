"""The host part of a compiled model, step by step: operators on the CPU target, and what crosses to programs.

The host module that the partitioned model asks for is made anew.  Every step of the stored one is held against the step
of the same name there, on the values that it really had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import tvm

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.host_steps import HostSteps, Step, Value, flat
from torq_byoc.accuracy.intent import layer_name
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.tile_values import bits
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

    Raises:
        ProgramFormatError: the stored module cannot be read or built.
    """

    def __init__(self, stages: Stages) -> None:
        module = with_runtime_calls(stages.parted.module, {symbol: symbol.encode() for symbol in stages.graphs})
        self._meant = HostSteps(deserialize(serialize(module)))
        self._found = HostSteps(deserialize(stages.compiled.host))
        self._nodes = _node_names(module, self._meant)
        self._symbols = {program_reference(p.blob): p.facts.symbol for p in stages.compiled.partitions}
        self._graphs = stages.graphs

    def run(self, arguments: list[np.ndarray], run_partition: RunPartition) -> HostRun:
        """Run the stored module.

        Args:
            arguments: the model's inputs in order.
            run_partition: runs a program, and finds its faults.
        """
        values: dict[str, Value] = dict(zip(self._found.parameters, arguments, strict=True))
        deviations: list[Deviation] = []
        meant = {step.name: step for step in self._meant.steps}
        for step in self._found.steps:
            wanted = meant.pop(step.name, None)
            try:
                value = self._value(step, wanted, values, deviations, run_partition)
            except ProgramFormatError as error:
                deviations.append(
                    self._deviation(step.name, "an operand of another type", f"{error.where}: {error.why}")
                )
                return HostRun(tuple(deviations), None)
            if value is None:
                return HostRun(tuple(deviations), None)
            values[step.name] = value
        deviations += [self._deviation(name, "a step is left out", f"the host lacks {name}") for name in meant]
        return HostRun(tuple(deviations), self._found.results(values))

    def _value(
        self,
        step: Step,
        wanted: Step | None,
        values: Mapping[str, Value],
        deviations: list[Deviation],
        run_partition: RunPartition,
    ) -> Value | None:
        """The value of a step; what is wrong with it is appended to the deviations."""
        if step.program is not None:
            return self._call(step, wanted, values, deviations, run_partition)
        found = self._found.run(step, values)
        if wanted is None:
            return found  # one too many: whether that matters shows in what reads it
        if wanted.program is not None:
            raise ProgramFormatError("the host has an operator in place of a program", where=step.name)
        try:
            expected = self._meant.run(wanted, values)
        except (ProgramFormatError, KeyError) as error:
            deviations.append(self._deviation(step.name, "an operand of another type", str(error)))
            return found
        if difference := _difference(found, expected):
            deviations.append(self._deviation(step.name, "an operator computes something else", difference))
        return found

    def _call(
        self,
        step: Step,
        wanted: Step | None,
        values: Mapping[str, Value],
        deviations: list[Deviation],
        run_partition: RunPartition,
    ) -> Value | None:
        """The results of a program; operands at the border that are not those of the partitioned module."""
        assert step.program is not None
        symbol = self._symbols.get(step.program, "")
        if not symbol or wanted is None or wanted.program != symbol.encode():
            deviations.append(self._deviation(step.name, "another program", "the host calls a program of another part"))
            return None
        arrays = [np.asarray(self._found.lookup(values, name)) for name in step.arguments]
        graph = self._graphs[symbol]
        for name, array, source in zip(graph.inputs, arrays, wanted.arguments, strict=True):
            if difference := _difference(array, self._found.lookup(values, source)):
                reader = next((layer_name(node) for node in graph.nodes if name in node.inputs), symbol)
                deviations.append(Deviation(Stage.HOST, reader, name, True, _border_cause(difference), difference))
                if "type" in difference or "shape" in difference:
                    return None
        results = run_partition(symbol, arrays)
        if results is None:
            return None
        return results if len(results) > 1 else results[0]

    def _deviation(self, step: str, cause: str, detail: str) -> Deviation:
        return Deviation(Stage.HOST, self._nodes.get(step, step), step, True, cause, detail)


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
