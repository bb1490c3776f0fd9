"""From command-line options to a compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torq_byoc.cli.options import parse_shapes
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.errors import CommandLineError, ModelFileError, QuantizationError, ScheduleError, TorqError
from torq_byoc.files import Expected, open_ordinary, read_text, shown_name
from torq_byoc.npu_model.container import CONTAINER_FILE, MAGIC

if TYPE_CHECKING:
    from torq_byoc.compilation.options import Options
    from torq_byoc.quantize.planning.planner import Planned
    from torq_byoc.quantize.planning.target import PrecisionTarget
    from torq_byoc.schedules.record import DecisionRecord

_SCHEDULE_FILE = Expected(
    ScheduleError, "the schedule file", "give a file that `torq compile --save-schedule` wrote", 64 << 20
)


def compile_request(model: Path, *, step: Callable[[str], None] | None = None, **request: Any) -> CompiledModel:
    """Compile a model file as the options of ``cli.options.model_options`` say.

    Raises:
        TorqError: anything wrong with the request or the model.
    """
    from torq_byoc.compiler import compile_model
    from torq_byoc.frontend import load_model

    refuse_container(model)
    options = options_of(step=step, **request)
    with naming_the_file(request.get("record")):
        return compile_model(load_model(model), options, name=shown_name(model))


def refuse_container(model: Path) -> None:
    """Refuse a container where a model is wanted.

    Raises:
        ModelFileError: the file is a container.
    """
    if holds_container(model):
        raise ModelFileError(
            "the model is compiled already",
            where=str(model),
            why="it is a container that `torq compile` wrote",
            remedy=f"run or look at it with `torq run {model}` or `torq inspect {model}`, or give the .onnx file",
        )


def holds_container(path: Path) -> bool:
    """Whether a file begins like a container."""
    try:
        with open_ordinary(path, CONTAINER_FILE) as (stream, _):
            return stream.read(len(MAGIC)) == MAGIC
    except (TorqError, OSError):
        return False


def options_of(
    *,
    precision: str = "auto",
    calib: Path | None = None,
    calibration_method: str = "auto",
    shapes: tuple[str, ...] = (),
    hw: str = "sl2610",
    record: Path | None = None,
    records: Path | None = None,
    plan: Path | None = None,
    sqnr: float | None = None,
    cosine: float | None = None,
    metric: str | None = None,
    least: float | None = None,
    effort: int = 1,
    disabled: tuple[str, ...] = (),
    disabled_rewrites: tuple[str, ...] = (),
    profile: str = "reference",
    watch: Callable[[str, str], None] | None = None,
    step: Callable[[str], None] | None = None,
) -> Options:
    """The compiler's options, every file they name read and checked; ``watch`` sees every level of IR.

    Raises:
        TorqError: a file is missing or malformed, or an option makes no sense.
    """
    from torq_byoc.compilation.options import Options
    from torq_byoc.compilation.tuning_records import RecordDatabase
    from torq_byoc.npu_model.presets import load_config
    from torq_byoc.quantize import load_calibration
    from torq_byoc.quantize.precision_plan import PrecisionPlan

    if precision != "mixed":
        targets = {"--target-sqnr": sqnr, "--target-cos": cosine, "--metric": metric, "--target-metric": least}
        refuse_given({"--precision-plan": plan, **targets})
    return Options(
        config=load_config(hw),
        precision=precision,
        calibration=load_calibration(calib) if calib else None,
        calibration_method=calibration_method,
        shapes=parse_shapes(shapes),
        decisions=_record(record) if record else None,
        effort=effort,
        disabled_passes=disabled,
        disabled_rewrites=disabled_rewrites,
        profile=profile,
        records=RecordDatabase.read(records) if records else None,
        plan=PrecisionPlan.read(plan) if plan else None,
        target=_target(sqnr, cosine, metric, least),
        observe=watch,
        progress=step,
    )


def _target(
    sqnr: float | None, cosine: float | None, metric: str | None, least: float | None
) -> PrecisionTarget | None:
    """What mixed precision has to reach; None where nothing is asked for."""
    from torq_byoc.quantize.planning.target import PrecisionTarget
    from torq_byoc.quantize.user_metric import load_metric

    if (sqnr, cosine, metric, least) == (None, None, None, None):
        return None
    return PrecisionTarget(sqnr, cosine, load_metric(metric) if metric else None, least)


def refuse_given(options: Mapping[str, object]) -> None:
    """Refuse options of mixed precision with another one.

    Raises:
        CommandLineError: some of them are given.
    """
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise CommandLineError(
            f"options without effect: {', '.join(given)}",
            where=given[0],
            why="they are about mixed precision",
            remedy="add --precision mixed, or leave them out",
        )


def exit_code_of(planned: Planned | None) -> int:
    """1 when a plan misses what was asked for, else 0."""
    return int(planned is not None and not planned.met)


def plan_to_write(planned: Planned | None) -> bytes:
    """The contents of a precision plan's file.

    Raises:
        QuantizationError: nothing was planned.
    """
    if planned is None:
        raise QuantizationError(
            "there is no precision plan to write",
            where="--save-precision-plan",
            why="the model is quantized and keeps its own types",
            remedy="start from the float model, or leave the option out",
        )
    return planned.plan.dumps().encode()


def files_read(
    *,
    calib: Path | None,
    hw: str,
    record: Path | None = None,
    records: Path | None = None,
    plan: Path | None = None,
    **_: Any,
) -> dict[str, Path | None]:
    """The paths among those options that are read, by option."""
    from torq_byoc.npu_model.presets import preset_names

    return {
        "--calib": calib,
        "--schedule": record,
        "--records": records,
        "--precision-plan": plan,
        "--hw": None if hw in preset_names() else Path(hw),
    }


def _record(path: Path) -> DecisionRecord:
    from torq_byoc.schedules.record import DecisionRecord

    with naming_the_file(path):
        return DecisionRecord.loads(read_text(path, _SCHEDULE_FILE))


@contextmanager
def naming_the_file(path: Path | None) -> Iterator[None]:
    """Say which file a decision that cannot be used was in."""
    try:
        yield
    except ScheduleError as error:
        if path is None or str(path) in error.where or error.where.startswith("--"):
            raise
        raise ScheduleError(
            error.what,
            where=f"{path}: {error.where}",
            why=error.why,
            remedy=error.remedy,
            details=error.details,
        ) from error
