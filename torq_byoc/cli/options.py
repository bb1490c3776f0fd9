"""Options and output shared by the sub-commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from torq_byoc.errors import CommandLineError, EnvironmentProblem, ShapeError

PROFILES = ("reference", "shared", "pessimistic")


@dataclass(frozen=True)
class Outcome:
    """What a sub-command returns: the object that ``--json`` prints, and the exit code.

    A command prints its own text when it is called without ``--json``, and nothing with it.
    """

    data: Mapping[str, Any]
    exit_code: int = 0


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: one object on stdout and nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def profile_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--profile``: the assumptions of the timing model."""
    return click.option(
        "--profile", type=click.Choice(PROFILES), default="reference", show_default=True, help="Timing assumptions."
    )(function)


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Everything that decides how a model is compiled."""
    for option in reversed(
        (
            click.option(
                "--precision",
                type=click.Choice(("auto", "int8", "int16", "bf16", "mixed")),
                default="auto",
                show_default=True,
                help="auto keeps a quantized model's scales; a float model becomes int8 with --calib, else bf16.",
            ),
            click.option("--calib", type=click.Path(path_type=Path), help="Calibration npz, or a folder of them."),
            click.option("--shape", "shapes", multiple=True, metavar="NAME:1x3x224x224", help="Fix an input's shape."),
            click.option("--hw", default="sl2610", show_default=True, help="Hardware preset or YAML file."),
            click.option("--schedule", "record", type=click.Path(path_type=Path), help="Decisions fixed by hand."),
            click.option("--effort", type=click.IntRange(0, 3), default=1, show_default=True, help="Search effort."),
            click.option("--disable-pass", "disabled", multiple=True, metavar="NAME", help="Leave a pass out."),
        )
    ):
        function = option(function)
    return function


def parse_shapes(values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """``NAME:1x3x224x224`` options as a mapping.

    Raises:
        ShapeError: an option is not of that form.
    """
    shapes = {}
    for value in values:
        name, separator, text = value.rpartition(":")
        parts = text.lower().split("x")
        if not separator or not name or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
            raise ShapeError(
                f"cannot read the shape {value!r}",
                where="--shape",
                remedy="write NAME:1x3x224x224 with positive extents",
            )
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def check_target(target: Path, *sources: Path) -> None:
    """Refuse an output path that cannot work, before any time is spent on its content.

    Args:
        target: file to be written.
        sources: files that are read, which it must not replace.

    Raises:
        CommandLineError: the output is another file of the command, or a folder.
        EnvironmentProblem: its folder does not exist.
    """
    if any(target.absolute() == source.absolute() for source in sources) or target.is_dir():
        what = "a folder" if target.is_dir() else "another file of this command"
        raise CommandLineError(
            "the output cannot go there", where=str(target), why=f"it is {what}", remedy="name a file"
        )
    if not target.absolute().parent.is_dir():
        raise EnvironmentProblem(
            "the output folder does not exist",
            where=str(target.absolute().parent),
            remedy="create it, or write somewhere else",
        )


@contextmanager
def progress(total: int | None, label: str) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, shown on terminals once the work takes over a second.

    Yields:
        A function that takes the name of the step that begins.
    """
    with tqdm(total=total, desc=label, delay=1.0, leave=False, disable=None) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        yield step
