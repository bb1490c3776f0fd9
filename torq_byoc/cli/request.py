"""From command-line options to a compilation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torq_byoc.cli.options import parse_shapes
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.errors import EnvironmentProblem, ScheduleError

if TYPE_CHECKING:
    from torq_byoc.compiler import Options
    from torq_byoc.schedules.record import DecisionRecord


def compile_request(model: Path, *, step: Callable[[str], None] | None = None, **request: Any) -> CompiledModel:
    """Compile a model file as the options of ``cli.options.model_options`` say.

    Raises:
        TorqError: anything wrong with the request or the model.
    """
    from torq_byoc.compiler import compile_model
    from torq_byoc.frontend import load_model

    options = options_of(step=step, **request)
    return compile_model(load_model(model), options, name=model.name)


def options_of(
    *,
    precision: str = "auto",
    calib: Path | None = None,
    shapes: tuple[str, ...] = (),
    hw: str = "sl2610",
    record: Path | None = None,
    effort: int = 1,
    disabled: tuple[str, ...] = (),
    dump: Path | None = None,
    step: Callable[[str], None] | None = None,
) -> Options:
    """The compiler's options, every file they name read and checked.

    Raises:
        TorqError: a file is missing or malformed, or an option makes no sense.
    """
    from torq_byoc.compiler import Options
    from torq_byoc.npu_model.presets import load_config
    from torq_byoc.quantize import load_calibration

    return Options(
        config=load_config(hw),
        precision=precision,
        calibration=load_calibration(calib) if calib else None,
        shapes=parse_shapes(shapes),
        decisions=_record(record) if record else None,
        effort=effort,
        disabled_passes=disabled,
        observe=_dumper(dump) if dump else None,
        progress=step,
    )


def _record(path: Path) -> DecisionRecord:
    from torq_byoc.schedules.record import DecisionRecord

    try:
        return DecisionRecord.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScheduleError(
            "the schedule file cannot be read", where=str(path), why=str(error), remedy="check the path"
        ) from error


def _dumper(folder: Path) -> Callable[[str, str], None]:
    """Writes each level to FOLDER/NN-level-pass.txt in the order in which they appear."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(
            "the IR folder cannot be created", where=str(folder), why=str(error), remedy="choose another --dump-ir"
        ) from error
    count = 0

    def write(level: str, text: str) -> None:
        nonlocal count
        (folder / f"{count:02d}-{level.replace('/', '-')}.txt").write_text(text, encoding="utf-8")
        count += 1

    return write
