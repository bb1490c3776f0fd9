"""From command-line options to a compilation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torq_byoc.cli.options import parse_shapes
from torq_byoc.cli.targets import DUMP_NAME
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.errors import EnvironmentProblem, ScheduleError
from torq_byoc.files import Expected, read_text
from torq_byoc.npu_model.container import write_file_atomically

if TYPE_CHECKING:
    from torq_byoc.compilation.options import Options
    from torq_byoc.schedules.record import DecisionRecord

_SCHEDULE_FILE = Expected(
    ScheduleError, "the schedule file", "give the text that `torq compile --explain` prints, as a file", 64 << 20
)


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
    records: Path | None = None,
    effort: int = 1,
    disabled: tuple[str, ...] = (),
    dump: Path | None = None,
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

    return Options(
        config=load_config(hw),
        precision=precision,
        calibration=load_calibration(calib) if calib else None,
        shapes=parse_shapes(shapes),
        decisions=_record(record) if record else None,
        effort=effort,
        disabled_passes=disabled,
        records=RecordDatabase.read(records) if records else None,
        observe=_both(_dumper(dump) if dump else None, watch),
        progress=step,
    )


def files_read(
    *, calib: Path | None, hw: str, record: Path | None, records: Path | None, **_: Any
) -> dict[str, Path | None]:
    """The paths among those options that are read, by option."""
    from torq_byoc.npu_model.presets import preset_names

    return {
        "--calib": calib,
        "--schedule": record,
        "--records": records,
        "--hw": None if hw in preset_names() else Path(hw),
    }


def _record(path: Path) -> DecisionRecord:
    from torq_byoc.schedules.record import DecisionRecord

    return DecisionRecord.loads(read_text(path, _SCHEDULE_FILE))


def _both(
    first: Callable[[str, str], None] | None, second: Callable[[str, str], None] | None
) -> Callable[[str, str], None] | None:
    """An observer for two; None when nobody looks."""
    if first is None or second is None:
        return first or second

    def show(level: str, text: str) -> None:
        first(level, text)
        second(level, text)

    return show


def _dumper(folder: Path) -> Callable[[str, str], None]:
    """Writes each level to the folder, numbered in the order in which they appear; the first one makes the folder."""
    numbers = count()

    def write(level: str, text: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentProblem(
                "the IR folder cannot be created", where=str(folder), why=str(error), remedy="choose another --dump-ir"
            ) from error
        name = DUMP_NAME.format(number=next(numbers), level=level.replace("/", "-"))
        write_file_atomically(folder / name, text.encode())

    return write
