"""The simulated program held against the integer reference, layer by layer and task by task.

Integers are held to the last bit, bf16 to one unit in the last place, in which the order of sums may differ.  Every
layer is judged on the inputs that it really had: the first layer that makes something else of them than its operator is
wrong by itself (local), those after it that only pass it on inherit it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.programs.host_check import HostCheck
from torq_byoc.accuracy.programs.intent import Intent, align, layer_name
from torq_byoc.accuracy.programs.judgement import Judgement
from torq_byoc.accuracy.programs.ledger import Finding
from torq_byoc.accuracy.programs.tile_values import Assembled, bits
from torq_byoc.accuracy.programs.watch import Watch
from torq_byoc.accuracy.stages import Stages
from torq_byoc.codegen.hl import SliceRun
from torq_byoc.errors import ProgramFormatError, VerificationError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.container import unpack_container
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import check

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
        self._intents = stages.intents
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
    judged = Judgement(watch, evaluate(intent.graph, inputs))
    local = [*findings, *judged.local(findings)]
    local.sort(key=lambda finding: finding.job)
    if not local:
        local += broken
    return Checked(tuple(judged.deviations(local)), outputs)


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
        return [*watch.ledger.findings, _end(watch, error)], None
    return [*watch.ledger.findings, *_unfetched(watch, program, results)], results


def _end(watch: Watch, error: VerificationError | ProgramFormatError) -> Finding:
    """Why a program cannot go on: a job leaves its memories, or what a slice should run is no program."""
    op = watch.ledger.op_of(watch.ledger.job)
    stage, cause = Stage.TILING, error.what
    if isinstance(error, ProgramFormatError):
        stale = isinstance(op, SliceRun) and watch.ledger.lacks_load(op.program)
        stage, cause = (Stage.TILING, "a stale program") if stale else (Stage.CODE_GENERATION, error.what)
    return Finding(watch.ledger.job, op.node if op else "", "", stage, cause, error.why)


def _unfetched(watch: Watch, program: Program, results: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Outputs that were computed and never reached their place."""
    made = watch.made
    for name in watch.graph.outputs:
        made.complete(name)
        known = made.known[name]
        wrong = known & (bits(results[name]) != bits(made.values[name]))
        root = watch.graph.storage_roots()[name]
        if wrong.any() and not any(finding.tensor in (name, root) for finding in watch.ledger.findings):
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
