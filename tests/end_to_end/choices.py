"""Where the decisions of a random graph come from: hypothesis, which can shrink them, or a seed, for long sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

T = TypeVar("T")


class Choices(Protocol):
    """A source of decisions."""

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases."""


@dataclass(frozen=True)
class Seeded:
    """Decisions from a generator."""

    rng: np.random.Generator

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(1, 100) > 100 - percent


@dataclass(frozen=True)
class Drawn:
    """Decisions that hypothesis draws, and makes smaller when a case fails."""

    draw: Callable[[st.SearchStrategy], object]

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(1, 100)) > 100 - percent


def some_of(choices: Choices, options: Sequence[T], percent: int) -> tuple[T, ...]:
    """Each of the options in so many of a hundred cases."""
    return tuple(option for option in options if choices.chance(percent))
