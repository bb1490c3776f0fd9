"""The one place where the stages are strung together: import, quantize, partition, schedule, generate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax

from torq_byoc.codegen.passes import check_pass_names
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.collector import no_cycle_collection
from torq_byoc.compilation.facts import model_facts
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.placement import check_decisions, place
from torq_byoc.compilation.programs import compile_function
from torq_byoc.compilation.record_reuse import compile_recorded
from torq_byoc.compilation.tuning_records import RecordDatabase
from torq_byoc.compiled_model import CompiledModel, Partition, program_reference
from torq_byoc.files import shown_name
from torq_byoc.frontend import load_model
from torq_byoc.host_module import npu_functions, serialize, with_runtime_calls
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.presets import load_config
from torq_byoc.quantize.choose_ranges import AUTO
from torq_byoc.quantize.data import load_calibration
from torq_byoc.quantize.planning.target import PrecisionTarget
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.relay_patterns import lower_partitions, partition
from torq_byoc.relay_patterns.registry import Precision
from torq_byoc.schedules.record import DecisionRecord


def compile(  # noqa: A001 - the public name of the API
    model: str | Path | onnx.ModelProto,
    *,
    precision: str = "auto",
    calibration: str | Path | Mapping[str, np.ndarray] | None = None,
    calibration_method: str = AUTO,
    shapes: Mapping[str, Sequence[int]] | None = None,
    hw: str | Path | NpuConfig = "sl2610",
    schedule: DecisionRecord | None = None,
    effort: int = 1,
    disable_passes: Collection[str] = (),
    disable_rewrites: Collection[str] = (),
    records: str | Path | RecordDatabase | None = None,
    profile: str = "reference",
    plan: PrecisionPlan | str | Path | None = None,
    target: PrecisionTarget | None = None,
) -> CompiledModel:
    """Compile an ONNX model for the NPU.

    Args:
        model: path of the model, or the model itself.
        precision: "auto" keeps the scales of a quantized model; a float model becomes int8 when there is
            calibration data, else bf16.  "mixed" plans the numbers of a float model, and runs what is float in a
            quantized one in bf16.
        calibration: npz file, folder of npz files, or arrays by input name whose first axis counts samples.
        calibration_method: "auto" chooses the best for each tensor; else a name of
            ``quantize.observers.CALIBRATORS``.
        shapes: input shapes by name for inputs with unknown dimensions.
        hw: preset name, YAML file, or a description.
        schedule: decisions fixed by hand (all or some).
        effort: 0..3, how much the scheduler searches.
        disable_passes: torq_hl passes to leave out.
        disable_rewrites: rewrites of the quantizer to leave out.
        records: tuning records, or the file that `torq tune` wrote: they decide the graphs that they know.
        profile: "reference", "shared" or "pessimistic": the timing profile whose tuning records count.
        plan: precision plan, or the file that holds it, for mixed precision.
        target: what the outputs have to reach in mixed precision; without a plan, ``PrecisionTarget.usual()``.

    Raises:
        TorqError: one of its subclasses for anything wrong with the input.
    """
    samples = load_calibration(calibration) if isinstance(calibration, str | Path) else calibration
    options = Options(
        config=hw if isinstance(hw, NpuConfig) else load_config(hw),
        precision=precision,
        calibration=samples,
        calibration_method=calibration_method,
        shapes=dict(shapes or {}),
        decisions=schedule,
        effort=effort,
        disabled_passes=tuple(disable_passes),
        disabled_rewrites=tuple(disable_rewrites),
        records=RecordDatabase.read(Path(records)) if isinstance(records, str | Path) else records,
        profile=profile,
        plan=PrecisionPlan.read(Path(plan)) if isinstance(plan, str | Path) else plan,
        target=target,
    )
    if isinstance(model, onnx.ModelProto):
        return compile_model(model, options, name=model.graph.name or "model")
    return compile_model(load_model(model), options, name=shown_name(Path(model)))


@no_cycle_collection()
def compile_model(model: onnx.ModelProto, options: Options, *, name: str) -> CompiledModel:
    """Run all stages on a loaded model.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: machine, precision, data, decisions.
        name: how reports call the model.

    Raises:
        TorqError: one of its subclasses for anything wrong with the model or the options.
    """
    check_pass_names(options.disabled_passes)
    clock = StageClock(options.progress)
    placement = place(model, options, clock)
    module = placement.parted.module
    options.show("tensor/partitioned", lambda: module.script(show_meta=False))
    with clock.stage("lower"):
        graphs = lower_partitions(npu_functions(module), options.config)
    check_decisions(options.decisions, graphs.values())
    recorded = [compile_recorded(symbol, graph, options, clock) for symbol, graph in graphs.items()]
    partitions = tuple(found.partition for found in recorded)
    placement = replace(placement, notes=(*placement.notes, *(found.note for found in recorded if found.note)))
    with clock.stage("host"):
        facts = model_facts(name, placement, partitions, options.config)
        host = b"" if facts.direct else _host_bytes(module, partitions)
    seconds, passes = clock.seconds, clock.passes
    return CompiledModel(facts, partitions, host, seconds, passes, placement.calibration, placement.planned)


def _host_bytes(module: tvm.IRModule, partitions: Sequence[Partition]) -> bytes:
    references = {p.facts.symbol: program_reference(p.blob) for p in partitions}
    return serialize(with_runtime_calls(module, references))


@no_cycle_collection()
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
    return partition(module, _arithmetic(module), config or NpuConfig()).module


def _arithmetic(module: tvm.IRModule) -> Precision:
    """Integers for a module with ``relax.quantize``, else bf16."""
    found = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "relax.quantize":
            found.append(expr)

    relax.analysis.post_order_visit(module["main"], visit)
    return "quantized" if found else "bf16"
