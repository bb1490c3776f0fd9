"""From command-line options to a compilation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torq_byoc.cli.options import parse_shapes
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.errors import EnvironmentProblem, ScheduleError


def compile_request(
    model: Path,
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
) -> CompiledModel:
    """Compile a model file as the options of ``cli.options.model_options`` say.

    Raises:
        TorqError: anything wrong with the request or the model.
    """
    from torq_byoc.compiler import Options, compile_model
    from torq_byoc.frontend import load_model
    from torq_byoc.npu_model.presets import load_config
    from torq_byoc.quantize import load_calibration

    fixed_shapes = parse_shapes(shapes)
    config = load_config(hw)
    decisions = _record(record) if record else None
    loaded = load_model(model)
    options = Options(
        config=config,
        precision=precision,
        calibration=load_calibration(calib) if calib else None,
        shapes=fixed_shapes,
        decisions=decisions,
        effort=effort,
        disabled_passes=disabled,
        observe=_dumper(dump) if dump else None,
        progress=step,
    )
    return compile_model(loaded, options, name=model.name)


def _record(path: Path):  # noqa: ANN202 - the type lives in a module that is imported late
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
