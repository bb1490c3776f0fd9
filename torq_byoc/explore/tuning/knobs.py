"""What may vary in a record, a class for every kind: option 0 leaves the base alone, every other one edits a draft."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
        return f"tile axis {self.axis}: {self.extents[option - 1]}"

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
        value = self.values[option - 1]
        return f"{self.kind}: {value[0] if self.kind == 'split_axis' else value}"

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
        return f"bands {self.field}: {self.values[option - 1]}"

    def apply(self, draft: Draft, option: int) -> None:
        """See ``Knob``."""
        draft.bands.setdefault(self.nodes[-1], {})[self.field] = self.values[option - 1]
