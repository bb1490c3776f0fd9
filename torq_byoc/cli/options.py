"""Options and output shared by the sub-commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from tqdm import tqdm

from torq_byoc.errors import CommandLineError, ShapeError, require_known

PROFILES = ("reference", "shared", "pessimistic")
PRECISIONS = ("auto", "int8", "int16", "bf16", "mixed")
CALIBRATION_METHODS = ("auto", "minmax", "percentile", "entropy", "mse", "moving-average", "headroom")
MOST_TRIALS = 1_000_000
MOST_LINES = 1_000_000_000
MOST_SECONDS = 1e6
LARGEST_SEED = 2**32 - 1
"""Of the generators that take the fewest bits, so that a seed means the same to all strategies."""
LONGEST_EXTENT = 18
"""Digits of an extent: what a signed 64-bit integer holds."""


class GivenPath(click.Path):
    """A path as it stands: whether it can be read is for whoever reads it to say, with what it should be."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
            CommandLineError: it is empty, which would mean the current folder.
        """
        _refuse_empty(value, "path", param, ctx)
        return super().convert(value, param, ctx)


class GivenName(click.ParamType):
    """Any name but the empty one."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it is.

        Raises:
            CommandLineError: it is empty.
        """
        _refuse_empty(value, "name", param, ctx)
        return str(value)


class Seconds(click.FloatRange):
    """A time: finite, not negative, at most ``MOST_SECONDS``."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(0.0, MOST_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; one that is not comparable lies in no range."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def _refuse_empty(value: Any, noun: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
    if value == "":
        command = ctx.command_path if ctx else "torq"
        raise CommandLineError(
            f"the {noun} is empty",
            where=f"{command} {param.opts[0]}" if param else command,
            remedy=f"give a {noun}; see {command} --help",
        )


PATH = GivenPath()
NAME = GivenName()
SECONDS = Seconds()


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
        command = ctx.command_path if ctx else "torq"
        where = f"{command} {param.opts[0]}" if param else command
        otherwise = f"; see {command} --help"
        require_known(CommandLineError, self.noun, [str(value)], self.choices, where=where, otherwise=otherwise)
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
    for option in (
        click.option("--records", type=PATH, help="Tuning records of `torq tune` to reuse."),
        click.option(
            "--schedule", "record", type=PATH, help="Decisions fixed by hand, as --save-schedule writes them."
        ),
    ):
        function = option(function)
    return search_options(mixed_options(function))


def mixed_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What mixed precision is to reach, or to be."""
    for option in (
        click.option(
            "--target-cos",
            "cosine",
            type=float,
            metavar="COSINE",
            help="Output cosine that mixed precision must reach.",
        ),
        click.option(
            "--target-sqnr", "sqnr", type=float, metavar="DB", help="Output SQNR that mixed precision must reach."
        ),
        click.option("--precision-plan", "plan", type=PATH, help="Mixed precision as this file says."),
    ):
        function = option(function)
    return function


def planning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What only commands that write the plan of mixed precision take."""
    save = click.option(
        "--save-precision-plan",
        "planned",
        type=PATH,
        help="Write the plan of --precision mixed, for --precision-plan.",
    )
    return metric_options(save(function))


def metric_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A quality of the user's that mixed precision is planned for."""
    for option in (
        click.option("--target-metric", "least", type=float, metavar="NUMBER", help="Least value of --metric."),
        click.option(
            "--metric", type=NAME, metavar="FILE.py:function", help="Quality that mixed precision is planned for."
        ),
    ):
        function = option(function)
    return function


def calibration_method_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where activation ranges come from."""
    return click.option(
        "--calibration-method",
        type=Name("calibration method", CALIBRATION_METHODS),
        default="auto",
        show_default=True,
        help="How ranges come from the samples; auto chooses for each tensor.",
    )(function)


def disable_rewrite_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """What quantization is not to try."""
    return click.option(
        "--disable-rewrite",
        "disabled_rewrites",
        type=NAME,
        multiple=True,
        metavar="NAME",
        help="Leave a rewrite of the quantizer out.",
    )(function)


def hardware_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The machine."""
    return click.option("--hw", type=NAME, default="sl2610", show_default=True, help="Hardware preset or YAML file.")(
        function
    )


def search_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What decides how a model is compiled where the decisions are searched for: no decisions."""
    for option in reversed(
        (
            click.option(
                "--precision",
                type=Name("precision", PRECISIONS),
                default="auto",
                show_default=True,
                help="auto keeps a quantized model's scales; a float model becomes int8 with --calib, else bf16;"
                " mixed plans int8, int16 and bf16 for a target.",
            ),
            click.option("--calib", type=PATH, help="Calibration npz, or a folder of them."),
            calibration_method_option,
            click.option("--shape", "shapes", multiple=True, metavar="NAME:1x3x224x224", help="Fix an input's shape."),
            hardware_option,
            click.option("--effort", type=click.IntRange(0, 3), default=1, show_default=True, help="Search effort."),
            click.option(
                "--disable-pass", "disabled", type=NAME, multiple=True, metavar="NAME", help="Leave a pass out."
            ),
            disable_rewrite_option,
        )
    ):
        function = option(function)
    return function


def parse_shapes(values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """``NAME:1x3x224x224`` options as a mapping.

    Raises:
        ShapeError: an option is not of that form, or an input has two.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, separator, text = value.rpartition(":")
        parts = text.lower().split("x")
        if not separator or not name or not all(_is_extent(part) for part in parts):
            raise ShapeError(
                f"cannot read the shape {value!r}",
                where="--shape",
                remedy="write NAME:1x3x224x224 with positive extents",
            )
        if name in shapes:
            raise ShapeError(f"the input {name!r} has two shapes", where="--shape", remedy="give one shape an input")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def _is_extent(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_EXTENT and int(text) > 0


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
