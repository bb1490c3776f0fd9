"""What may vary in a record, a class for every kind: option 0 leaves the base alone, every other one edits a draft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torq_byoc.explore.tuning.draft import Draft


@dataclass(frozen=True)
class Knob(ABC):
    """One thing that may vary.

    Attributes:
        subject: what it is about, as a reader of a report knows it.
        nodes: positions of the nodes whose time it concerns.
        kind: what varies, in a word.
    """

    subject: str
    nodes: tuple[int, ...]
    kind: str

    @property
    def options(self) -> int:
        """How many settings there are, the base's own (0) among them."""
        return 2

    @property
    def unset(self) -> str:
        """Words for setting 0 after another one."""
        return f"{self.kind.replace('_', ' ')} as at first"

    @abstractmethod
    def setting(self, option: int) -> str:
        """Words for a setting other than 0."""

    @abstractmethod
    def apply(self, draft: Draft, option: int) -> None:
        """Edit a draft; ``option`` is not 0."""


@dataclass(frozen=True)
class ExtentKnob(Knob):
    """Extent along one axis of the tile of a node and of all that are alike."""

    axis: int
    extents: tuple[int, ...]

    @property
    def options(self) -> int:
        """The base's extent and the others."""
        return 1 + len(self.extents)

    def setting(self, option: int) -> str:
        """See ``Knob``."""
        return f"tile extent {self.extents[option - 1]} along axis {self.axis}"

    def apply(self, draft: Draft, option: int) -> None:
        """See ``Knob``."""
        for index in self.nodes:
            draft.extents.setdefault(index, {})[self.axis] = self.extents[option - 1]


@dataclass(frozen=True)
class FieldKnob(Knob):
    """A field of the decision of a node and of all that are alike: order, split_axis, buffers or portion."""

    values: tuple[Any, ...]

    @property
    def options(self) -> int:
        """The base's value and the others."""
        return 1 + len(self.values)

    def setting(self, option: int) -> str:
        """See ``Knob``."""
        return _FIELD_WORDS[self.kind](self.values[option - 1])

    def apply(self, draft: Draft, option: int) -> None:
        """See ``Knob``."""
        for index in self.nodes:
            draft.fields.setdefault(index, {})[self.kind] = self.values[option - 1]


@dataclass(frozen=True)
class ResidencyKnob(Knob):
    """Whether a tensor stays in LRAM from its producer to its last reader."""

    resident: bool

    def setting(self, option: int) -> str:
        """See ``Knob``."""
        del option
        return "through XRAM" if self.resident else "stays in LRAM"

    def apply(self, draft: Draft, option: int) -> None:
        """See ``Knob``."""
        del option
        draft.flipped.add(self.subject)


@dataclass(frozen=True)
class BoundaryKnob(Knob):
    """Whether neighbours belong to one group: grows, shrinks, cuts, joins or (with all of its boundaries) drops one."""

    boundaries: tuple[int, ...]
    joined: bool

    def setting(self, option: int) -> str:
        """See ``Knob``."""
        del option
        if len(self.boundaries) > 1:
            return f"no group of {len(self.nodes)} nodes"
        return "cut from the next node" if self.joined else "joined with the next node"

    def apply(self, draft: Draft, option: int) -> None:
        """See ``Knob``."""
        del option
        draft.toggled.symmetric_difference_update(self.boundaries)


@dataclass(frozen=True)
class BandKnob(Knob):
    """How groups that end with a node are cut: axis, buffers, or finer and coarser bands."""

    field: str
    values: tuple[int, ...]

    @property
    def options(self) -> int:
        """The base's value and the others."""
        return 1 + len(self.values)

    def setting(self, option: int) -> str:
        """See ``Knob``."""
        return _BAND_WORDS[self.field](self.values[option - 1])

    def apply(self, draft: Draft, option: int) -> None:
        """See ``Knob``."""
        draft.bands.setdefault(self.nodes[-1], {})[self.field] = self.values[option - 1]


def _buffered(buffers: int) -> str:
    return "double buffers" if buffers == 2 else "single buffers"


def _split(value: tuple[int | None]) -> str:
    return "on one slice" if value[0] is None else f"divided between the slices along axis {value[0]}"


def _ordered(order: tuple[int, ...]) -> str:
    return f"loops over axes {', '.join(map(str, order))}, outermost first"


def _portioned(portion: tuple[int, ...]) -> str:
    return f"reduction in portions of {' x '.join(map(str, portion))}" if portion else "reduction whole"


def _finer(steps: int) -> str:
    return f"bands {abs(steps)} {'step' if abs(steps) == 1 else 'steps'} {'finer' if steps > 0 else 'coarser'}"


_FIELD_WORDS: dict[str, Callable[[Any], str]] = {
    "split_axis": _split,
    "order": _ordered,
    "buffers": _buffered,
    "portion": _portioned,
}
_BAND_WORDS: dict[str, Callable[[int], str]] = {
    "finer": _finer,
    "buffers": lambda buffers: f"bands with {_buffered(buffers)}",
    "axis": lambda axis: f"bands along axis {axis}",
}
