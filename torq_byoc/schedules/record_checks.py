"""Checks of the values in a decision record that is read from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torq_byoc.errors import ScheduleError


def integer(value: Any, where: str) -> int:
    """The value as a whole number; ``where`` names it in the error."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise record_error(where, f"expected a whole number, found {value!r}")
    return value


def expect(value: Any, kind: type, where: str, description: str) -> Any:
    """The value, which must be of a kind; ``description`` says what was expected."""
    if not isinstance(value, kind):
        raise record_error(where, f"expected {description}, found {type(value).__name__}")
    return value


def reject_unknown(entry: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse keys that no version of the format has."""
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise record_error(where, f"unknown key {unknown[0]!r}; known keys are {', '.join(known)}")


def record_error(where: str, why: str) -> ScheduleError:
    """The error of a record that cannot be read."""
    return ScheduleError(
        "the decision record cannot be read",
        where=where,
        why=why,
        remedy="write a complete record with `torq compile --save-schedule FILE` and edit that",
    )
