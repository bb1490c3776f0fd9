"""The check as one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from torq_byoc.accuracy.check import LAYER_SAMPLES, CheckResult, check
from torq_byoc.accuracy.layers.float_model import with_float_model
from torq_byoc.accuracy.programs.container_numbers import require_same_numbers
from torq_byoc.accuracy.programs.containers import options_of_container, require_same_model
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.accuracy.verdict.thresholds import Thresholds, load_thresholds
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.tuning_records import RecordDatabase
from torq_byoc.compiled_model import load
from torq_byoc.files import shown_name
from torq_byoc.frontend import load_model
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.presets import load_config
from torq_byoc.quantize.choose_ranges import AUTO
from torq_byoc.quantize.data import load_calibration
from torq_byoc.quantize.planning.target import PrecisionTarget
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.user_metric import Metric
from torq_byoc.schedules.record import DecisionRecord

Data = str | Path | Mapping[str, np.ndarray]


def check_model(
    model: str | Path | onnx.ModelProto,
    data: Data,
    *,
    container: str | Path | None = None,
    float_model: str | Path | onnx.ModelProto | None = None,
    precision: str = "auto",
    calibration: Data | None = None,
    calibration_method: str = AUTO,
    shapes: Mapping[str, Sequence[int]] | None = None,
    hw: str | Path | NpuConfig = "sl2610",
    schedule: DecisionRecord | None = None,
    effort: int = 1,
    disable_passes: Collection[str] = (),
    disable_rewrites: Collection[str] = (),
    records: str | Path | RecordDatabase | None = None,
    plan: PrecisionPlan | str | Path | None = None,
    target: PrecisionTarget | None = None,
    thresholds: str | Path | Thresholds | None = None,
    metric: Metric | None = None,
    layer_samples: int = LAYER_SAMPLES,
) -> CheckResult:
    """Compare a model on the simulated NPU with the float model, layer by layer.

    Args:
        model: path of the model, or the model itself.
        data: evaluation data: npz file, folder of npz files, or arrays by input name whose first axis counts samples;
            "labels" may hold the classes.
        container: a ``.torq`` file to check in place of a new compilation; machine, precision and decisions are its
            own then.
        float_model: what a model that carries its scales was made from, or its path: held against that, damaged
            scales show; without it such a model is held against itself.
        precision, calibration, calibration_method, shapes, hw, schedule, effort, disable_passes, disable_rewrites,
        records, plan, target: as for ``torq_byoc.compile``; the target is to be reached on the evaluation data too.
        thresholds: a YAML file, or limits; the defaults without.
        metric: takes the outputs of both by name, the first axis counting samples; returns a number, or numbers by
            name.
        layer_samples: on how many samples every layer is looked at.

    Returns:
        What was found; ``passed`` says whether every threshold is reached.

    Raises:
        TorqError: one of its subclasses for anything wrong with the input.
    """
    given = _loaded(model)
    options = Options(
        config=hw if isinstance(hw, NpuConfig) else load_config(hw),
        precision=precision,
        calibration=_arrays(calibration) if calibration is not None else None,
        calibration_method=calibration_method,
        shapes=dict(shapes or {}),
        decisions=schedule,
        effort=effort,
        disabled_passes=tuple(disable_passes),
        disabled_rewrites=tuple(disable_rewrites),
        records=RecordDatabase.read(Path(records)) if isinstance(records, str | Path) else records,
        plan=PrecisionPlan.read(Path(plan)) if isinstance(plan, str | Path) else plan,
        target=target,
    )
    name = model.graph.name if isinstance(model, onnx.ModelProto) else shown_name(Path(model))
    stages = stages_for_check(given, options, name, Path(container) if container else None)
    if float_model is not None:
        stages = with_float_model(stages, _loaded(float_model))
    limits = load_thresholds(Path(thresholds)) if isinstance(thresholds, str | Path) else thresholds
    return check(
        stages,
        data,
        calibration=options.calibration,
        thresholds=limits,
        metric=metric,
        layer_samples=layer_samples,
    )


def stages_for_check(model: onnx.ModelProto, options: Options, name: str, container: Path | None = None) -> Stages:
    """The stages of a model, compiled here or with the programs of a container.

    Raises:
        TorqError: anything wrong with model, options or container.
    """
    if container is None:
        return stages_of(model, options, name=name)
    compiled = load(container)
    stages = stages_of(model, options_of_container(compiled, options, container), name=name, compiled=compiled)
    require_same_model(stages, container)
    require_same_numbers(stages, container)
    return stages


def _loaded(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    return model if isinstance(model, onnx.ModelProto) else load_model(Path(model))


def _arrays(data: Data) -> Mapping[str, np.ndarray]:
    return load_calibration(data) if isinstance(data, str | Path) else data
