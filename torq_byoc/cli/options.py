"""Options and output shared by the sub-commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from torq_byoc.errors import ShapeError

PROFILES = ("reference", "shared", "pessimistic")


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


def emit_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object with sorted keys."""
    click.echo(json.dumps(data, indent=2, sort_keys=True))


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
