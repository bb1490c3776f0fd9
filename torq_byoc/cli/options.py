"""Options and output shared by the sub-commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from tqdm import tqdm

from torq_byoc.errors import CommandLineError, ShapeError, choose_from

PROFILES = ("reference", "shared", "pessimistic")
PRECISIONS = ("auto", "int8", "int16", "bf16")
PATH = click.Path(path_type=Path, readable=False)
"""A path as it stands: whether it can be read is for whoever reads it to say, with what it should be."""


@dataclass(frozen=True)
class Outcome:
    """What a sub-command returns: the object that ``--json`` prints, and the exit code.

    A command prints its own text when it is called without ``--json``, and nothing with it.
    """

    data: Mapping[str, Any]
    exit_code: int = 0


class Name(click.Choice):
    """One of a few names; the refusal of another suggests the nearest.

    Args:
        noun: what the names are names of.
        names: all of them.
    """

    def __init__(self, noun: str, names: Sequence[str]) -> None:
        super().__init__(names)
        self.noun = noun

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself.

        Raises:
            CommandLineError: there is no such name.
        """
        if value not in self.choices:
            command = ctx.command_path if ctx else "torq"
            raise CommandLineError(
                f"there is no {self.noun} {value!r}",
                where=f"{command} {param.opts[0]}" if param else command,
                remedy=f"{choose_from(str(value), self.choices)}; see {command} --help",
            )
        return str(value)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: one object on stdout and nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def profile_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--profile``: the assumptions of the timing model."""
    return click.option(
        "--profile", type=Name("profile", PROFILES), default="reference", show_default=True, help="Timing assumptions."
    )(function)


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Everything that decides how a model is compiled."""
    for option in reversed(
        (
            click.option(
                "--precision",
                type=Name("precision", PRECISIONS),
                default="auto",
                show_default=True,
                help="auto keeps a quantized model's scales; a float model becomes int8 with --calib, else bf16.",
            ),
            click.option("--calib", type=PATH, help="Calibration npz, or a folder of them."),
            click.option("--shape", "shapes", multiple=True, metavar="NAME:1x3x224x224", help="Fix an input's shape."),
            click.option("--hw", default="sl2610", show_default=True, help="Hardware preset or YAML file."),
            click.option("--schedule", "record", type=PATH, help="Decisions fixed by hand."),
            click.option("--records", type=PATH, help="Tuning records of `torq tune` to reuse."),
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


def refuse_unused(names: Iterable[str], why: str) -> None:
    """Refuse options that the command would not look at in this use.

    Args:
        names: their parameters.
        why: why they have no effect.

    Raises:
        CommandLineError: some of them are on the command line.
    """
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    given = [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        raise CommandLineError(
            f"options without effect: {', '.join(options[name] for name in given)}",
            where=context.command_path,
            why=why,
            remedy="leave them out",
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
