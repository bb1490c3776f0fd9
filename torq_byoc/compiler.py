"""The one place where the stages are strung together: import, quantize, partition, schedule, generate."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax

from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.codegen.hl import HlProgram
from torq_byoc.compiled_model import (
    FORMAT,
    CompiledModel,
    CpuOp,
    Layer,
    ModelFacts,
    Partition,
    PartitionFacts,
    TensorSpec,
    program_reference,
)
from torq_byoc.errors import LramOverflowError, QuantizationError, ScheduleError
from torq_byoc.frontend import load_model, prepare_with_notes, to_relax
from torq_byoc.host_module import is_direct, npu_functions, serialize, with_runtime_calls
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.lower_bound import model_floor
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.container import pack_container
from torq_byoc.npu_model.presets import load_config
from torq_byoc.npu_model.verifier import verify
from torq_byoc.quantize import quantize_model
from torq_byoc.relay_patterns import PartitionedModule, lower_partition, partition
from torq_byoc.schedules.node_tiles import scheduled_function
from torq_byoc.schedules.plan import Schedule, schedule
from torq_byoc.schedules.record import DecisionRecord
from torq_byoc.schedules.tensor_expressions import defined_ops

PRECISIONS = ("auto", "int8", "int16", "bf16")
BUDGETS: tuple[float, ...] = (1.0, 0.9, 0.8, 0.65, 0.5)
"""Shares of the LRAM that a schedule may plan with, tried until its tiles can be laid out."""

Observer = Callable[[str, str], None]
"""Receives (level and pass, text) for every printed level of IR."""


@dataclass(frozen=True, eq=False)
class Options:
    """Everything that a compilation depends on beside the model."""

    config: NpuConfig = field(default_factory=NpuConfig)
    precision: str = "auto"
    calibration: Mapping[str, np.ndarray] | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    decisions: DecisionRecord | None = None
    effort: int = 1
    disabled_passes: Collection[str] = ()
    observe: Observer | None = None
    progress: Callable[[str], None] | None = None


def compile(  # noqa: A001 - the public name of the API
    model: str | Path | onnx.ModelProto,
    *,
    precision: str = "auto",
    calibration: str | Path | Mapping[str, np.ndarray] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    hw: str | Path | NpuConfig = "sl2610",
    schedule: DecisionRecord | None = None,
    effort: int = 1,
    disable_passes: Collection[str] = (),
) -> CompiledModel:
    """Compile an ONNX model for the NPU.

    Args:
        model: path of the model, or the model itself.
        precision: "auto" keeps the scales of a quantized model; a float model becomes int8 when there is
            calibration data, else bf16.
        calibration: npz file, folder of npz files, or arrays by input name whose first axis counts samples.
        shapes: input shapes by name for inputs with unknown dimensions.
        hw: preset name, YAML file, or a description.
        schedule: decisions fixed by hand (all or some).
        effort: 0..3, how much the scheduler searches.
        disable_passes: torq_hl passes to leave out.

    Raises:
        TorqError: one of its subclasses for anything wrong with the input.
    """
    from torq_byoc.quantize.data import load_calibration

    samples = load_calibration(calibration) if isinstance(calibration, str | Path) else calibration
    options = Options(
        config=hw if isinstance(hw, NpuConfig) else load_config(hw),
        precision=precision,
        calibration=samples,
        shapes=dict(shapes or {}),
        decisions=schedule,
        effort=effort,
        disabled_passes=tuple(disable_passes),
    )
    if isinstance(model, onnx.ModelProto):
        return compile_model(model, options, name=model.graph.name or "model")
    return compile_model(load_model(model), options, name=Path(model).name)


def compile_model(model: onnx.ModelProto, options: Options, *, name: str) -> CompiledModel:
    """Run all stages on a loaded model.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: machine, precision, data, decisions.
        name: how reports call the model.
    """
    clock = _Clock(options.progress)
    with clock.stage("import"):
        preparation = prepare_with_notes(model, dict(options.shapes))
    prepared = preparation.model
    precision = resolve_precision(prepared, options)
    if precision in ("int8", "int16"):
        with clock.stage("quantize"):
            prepared = quantize_model(prepared, options.calibration, precision=precision)
    with clock.stage("partition"):
        parted = partition(to_relax(prepared), "bf16" if precision == "bf16" else "quantized", options.config)
    _observe(options, "tensor/partitioned", lambda: parted.module.script(show_meta=False))
    with clock.stage("lower"):
        graphs = {
            symbol: lower_partition(function, options.config)
            for symbol, function in npu_functions(parted.module).items()
        }
    _check_decisions(options.decisions, graphs.values())
    partitions = [compile_graph(symbol, graph, options, clock) for symbol, graph in graphs.items()]
    with clock.stage("host"):
        facts = _facts(
            name,
            precision,
            prepared,
            parted,
            partitions,
            (*preparation.notes, *_unused(precision, options)),
            options.config,
        )
        host = b"" if facts.direct else _host_bytes(parted.module, partitions)
    return CompiledModel(facts, tuple(partitions), host, clock.seconds, clock.passes)


def resolve_precision(model: onnx.ModelProto, options: Options) -> str:
    """The precision that a request means for a model: "quantized", "int8", "int16" or "bf16".

    Raises:
        QuantizationError: int8 or int16 is asked of a float model without calibration data, or bf16 of a
            quantized model.
    """
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    wanted = options.precision
    if wanted not in PRECISIONS:
        raise QuantizationError(
            f"there is no precision {wanted!r}", where="--precision", remedy=f"use one of {', '.join(PRECISIONS)}"
        )
    if quantized:
        if wanted == "bf16":
            raise QuantizationError(
                "a quantized model cannot be compiled for bf16",
                where=model.graph.name,
                why="its QuantizeLinear nodes fix the integer types",
                remedy="use --precision auto, or start from the float model",
            )
        return "quantized"
    if wanted == "auto":
        return "int8" if options.calibration is not None else "bf16"
    if wanted in ("int8", "int16") and options.calibration is None:
        raise QuantizationError(
            f"{wanted} needs calibration data",
            where=model.graph.name,
            why="the model is float, and activation ranges come from data",
            remedy="give --calib FILE.npz, or use --precision bf16",
        )
    return wanted


def _unused(precision: str, options: Options) -> tuple[str, ...]:
    """What of a request has no effect, for the notes of the summary."""
    if precision != "quantized":
        return ()
    unused = []
    if options.precision in ("int8", "int16"):
        unused.append(f"the model is quantized and keeps its own types: precision {options.precision} has no effect")
    if options.calibration is not None:
        unused.append("the model is quantized and keeps its own scales: the calibration data is not used")
    return tuple(unused)


def offload(module: tvm.IRModule, hw: str | Path | NpuConfig = "sl2610") -> tvm.IRModule:
    """Partition a Relax module, compile its partitions, and leave calls of the runtime in their place."""
    options = Options(config=hw if isinstance(hw, NpuConfig) else load_config(hw))
    parted = partition_for_torq(module, options.config)
    programs = {
        symbol: compile_function(symbol, function, options).blob for symbol, function in npu_functions(parted).items()
    }
    return with_runtime_calls(parted, programs)


def partition_for_torq(module: tvm.IRModule, config: NpuConfig | None = None) -> tvm.IRModule:
    """The module with what the NPU can run cut out as functions with ``Codegen = "torq"``.

    A module with ``relax.quantize`` is taken as quantized, any other as float for bf16.
    """
    return partition(module, _module_precision(module), config or NpuConfig()).module


def _module_precision(module: tvm.IRModule) -> str:
    found = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "relax.quantize":
            found.append(expr)

    relax.analysis.post_order_visit(module["main"], visit)
    return "quantized" if found else "bf16"


def _check_decisions(record: DecisionRecord | None, graphs: Iterable[OpGraph]) -> None:
    """Every entry of a hand-written record must be about some partition of the model."""
    if record is None:
        return
    nodes, tensors = set(), set()
    for graph in graphs:
        nodes |= {node.name for node in graph.nodes}
        tensors |= set(graph.tensors)
    unknown = sorted((set(record.nodes) - nodes) | (set(record.resident) - tensors))
    if unknown:
        raise ScheduleError(
            "the schedule names nodes or tensors that the model does not have",
            where=", ".join(unknown[:8]),
            why=f"{len(unknown)} unknown names",
            remedy=f"use names such as {', '.join(sorted(nodes)[:4])} (torq compile --explain lists them)",
        )


def compile_function(symbol: str, function: relax.Function, options: Options | None = None) -> Partition:
    """Compile one partition of a module to a verified program.

    Raises:
        LramOverflowError: an operator cannot be tiled into the LRAM.
        VerificationError: a defect of ours; the program is not safe.
    """
    options = options or Options()
    return compile_graph(symbol, lower_partition(function, options.config), options)


def compile_graph(symbol: str, graph: OpGraph, options: Options, clock: _Clock | None = None) -> Partition:
    """Schedule, generate and verify the program of an operator graph (see ``compile_function``)."""
    clock = clock or _Clock(None)
    plan, generated = _schedule_and_generate(graph, options, clock)
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


def _schedule_and_generate(graph: OpGraph, options: Options, clock: _Clock) -> tuple[Schedule, GeneratedProgram]:
    """Schedule with as much LRAM as leads to a layout."""

    def observe(name: str, program: HlProgram) -> None:
        _observe(options, f"torq_hl/{name}", lambda: _hl_text(program))

    decisions = None
    if options.decisions is not None:
        decisions = options.decisions.restricted_to({node.name for node in graph.nodes}, graph.tensors)
    for budget in BUDGETS:
        with clock.stage("schedule"):
            plan = schedule(graph, options.config, effort=options.effort, overrides=decisions, budget=budget)
        _observe(options, "scheduled/tir", lambda plan=plan: _scheduled_text(graph, plan))
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
            if budget == BUDGETS[-1]:
                raise
    raise AssertionError("the last budget either returns or raises")


def _layers(graph: OpGraph, plan: Schedule, generated: GeneratedProgram) -> tuple[Layer, ...]:
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


def _facts(
    name: str,
    precision: str,
    prepared: onnx.ModelProto,
    parted: PartitionedModule,
    partitions: Sequence[Partition],
    notes: Sequence[str],
    config: NpuConfig,
) -> ModelFacts:
    npu_macs = sum(layer.macs for partition_ in partitions for layer in partition_.facts.layers)
    return ModelFacts(
        format=FORMAT,
        model=name,
        precision=precision,
        inputs=_specs(prepared.graph.input),
        outputs=_output_specs(prepared.graph.output, parted.module["main"]),
        floor=model_floor(prepared, precision, npu_macs, config),
        cpu_ops=tuple(CpuOp(op.node, op.op, op.reason) for op in parted.cpu_ops),
        npu_ops=sum(len(partition_.facts.layers) for partition_ in partitions),
        direct=is_direct(parted.module),
        notes=tuple(notes),
    )


def _specs(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorSpec, ...]:
    specs = []
    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        specs.append(TensorSpec(value.name, shape, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name))
    return tuple(specs)


def _output_specs(values: Sequence[onnx.ValueInfoProto], main: relax.Function) -> tuple[TensorSpec, ...]:
    """Outputs with the shapes that the operators give: what a file declares may be wrong (it is where a pool
    rounds up and its last window would start in the padding)."""
    result = main.ret_ty
    kinds = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    return tuple(
        TensorSpec(spec.name, tuple(int(extent) for extent in kind.shape.values), spec.dtype)
        for spec, kind in zip(_specs(values), kinds, strict=True)
    )


def _host_bytes(module: tvm.IRModule, partitions: Sequence[Partition]) -> bytes:
    references = {p.facts.symbol: program_reference(p.blob) for p in partitions}
    return serialize(with_runtime_calls(module, references))


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
            parts.append(scheduled_function(graph, node, entry.decision).mod.script(show_meta=False))
    return "\n".join(parts) + "\n"


def _hl_text(program: HlProgram) -> str:
    from torq_byoc.codegen.text import format_program

    return format_program(program)


def _observe(options: Options, level: str, text: Callable[[], str]) -> None:
    if options.observe:
        options.observe(level, text())


class _Clock:
    """Seconds by stage, and the progress call at each stage's start."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.passes: dict[str, float] = {}

    def record_pass(self, name: str, seconds: float) -> None:
        """Add a pass's share of the "generate" stage."""
        self.passes[name] = self.passes.get(name, 0.0) + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self.progress:
            self.progress(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
