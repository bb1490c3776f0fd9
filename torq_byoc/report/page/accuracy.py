"""The accuracy check as one HTML file that opens offline: verdict, cause, pictures, figures of every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.report.page.environment import page_environment

WIDTH, HEIGHT, MARGIN = 860, 320, 48
"""Of the picture of all layers, and of the space for its texts, in pixels."""
SQUARE = 260
"""Side of a picture of one output part."""
HIGHEST = 80.0
"""Decibels at the top of the picture of all layers."""


@dataclass(frozen=True)
class LayerMark:
    """A layer in the picture: where its figures end to end and alone lie, in pixels."""

    name: str
    x: float
    overall_y: float
    local_y: float
    overall: float
    local: float


@dataclass(frozen=True)
class LayerPicture:
    """SQNR along the model.

    Attributes:
        path: of the line through the figures end to end.
        rows: lines of equal SQNR as (pixel, text).
    """

    marks: tuple[LayerMark, ...]
    path: str
    rows: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class PartPicture:
    """Values of one output part: float model to the right, NPU upwards; the diagonal is agreement.

    Attributes:
        dots: in pixels.
        low, high: at the ends of both axes.
    """

    name: str
    dots: tuple[tuple[float, float], ...]
    low: float
    high: float


Points = Mapping[tuple[str, str], Sequence[tuple[float, float]]]
"""Values of output parts as (float model, NPU), by output and part."""


def accuracy_page(data: Mapping[str, Any], points: Points) -> str:
    """The page.

    Args:
        data: of ``accuracy.result_json.result_data``.
        points: some values of each output part.
    """
    template = page_environment().get_template("accuracy.html")
    return template.render(
        data=data,
        layers=layer_picture(data["layers"]),
        parts=[part_picture(_name(key), pairs) for key, pairs in points.items() if pairs],
        size=(WIDTH, HEIGHT, MARGIN, SQUARE),
    )


def layer_picture(rows: Sequence[Mapping[str, Any]]) -> LayerPicture | None:
    """SQNR of every layer in order; None without layers."""
    if not rows:
        return None
    step = (WIDTH - 2 * MARGIN) / max(len(rows), 1)
    marks = tuple(
        LayerMark(
            row["node"] or row["tensor"],
            round(MARGIN + step * (index + 0.5), 2),
            _height(row["overall"]["sqnr"]),
            _height(row["local"]["sqnr"]),
            row["overall"]["sqnr"],
            row["local"]["sqnr"],
        )
        for index, row in enumerate(rows)
    )
    path = " ".join(f"{'L' if index else 'M'}{mark.x},{mark.overall_y}" for index, mark in enumerate(marks))
    return LayerPicture(marks, path, tuple((_height(float(value)), f"{value} dB") for value in range(0, 81, 20)))


def _height(decibels: float) -> float:
    part = min(max(decibels, 0.0), HIGHEST) / HIGHEST
    return round(HEIGHT - MARGIN - part * (HEIGHT - 1.5 * MARGIN), 2)


def part_picture(name: str, pairs: Sequence[tuple[float, float]]) -> PartPicture:
    """Some values of a part."""
    values = [value for pair in pairs for value in pair]
    low, high = min(values), max(values)
    span = (high - low) or 1.0

    def pixel(value: float) -> float:
        return round((value - low) / span * SQUARE, 1)

    return PartPicture(name, tuple((pixel(wanted), SQUARE - pixel(found)) for wanted, found in pairs), low, high)


def _name(key: tuple[str, str]) -> str:
    output, part = key
    return output if output == part else f"{output}/{part}"
