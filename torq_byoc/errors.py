"""Floor 0: the one exception tree of the project.

Every message a user sees has four short parts: *what* went wrong, *where* (node, tensor, file and
offset), *why* (the number against the limit) and *try* (the remedy).  The command line prints them as
text or, with ``--json``, as an object with the same fields.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

LONGEST = 2000
"""Characters of a part of a message; of a longer one the middle is left out."""
LONGEST_WORD = 500
"""Characters without a space, such as a name or a value, outside paths."""


class TorqError(Exception):
    """A failure with its cause and its remedy.

    Args:
        what: one sentence saying what failed.
        where: the node, tensor, file or offset concerned; empty when it is the whole input.
        why: the fact behind the failure, as a number against its limit where there is one.
        remedy: what the reader can do about it.
        details: machine-readable facts, added to the ``--json`` form.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        why: str = "",
        remedy: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.what = _legible(what)
        self.where = _shortened(where, LONGEST)
        self.why = _legible(why)
        self.remedy = _legible(remedy)
        self.details = dict(details or {})
        super().__init__(self.render())

    @property
    def kind(self) -> str:
        """The class name, as it appears in the ``--json`` form."""
        return type(self).__name__

    def render(self) -> str:
        """The message as a person reads it, one part a line, empty parts left out."""
        parts = [("", self.what), ("where: ", self.where), ("why: ", self.why), ("try: ", self.remedy)]
        return "\n".join(label + text for label, text in parts if text)

    def to_json(self) -> dict[str, Any]:
        """The message as the ``--json`` form carries it."""
        return {
            "error": self.kind,
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "try": self.remedy,
            "details": self.details,
        }


class ModelFileError(TorqError):
    """The model file cannot be read, is malformed, or points outside its folder."""


class UnsupportedOpError(TorqError):
    """Operators that can run neither on the NPU nor on the CPU; all of a model's at once."""


class ShapeError(TorqError):
    """A dimension is unknown, negative, or does not fit its neighbour."""


class QuantizationError(TorqError):
    """Scales, zero points or integer parameters that the arithmetic cannot express."""


class HardwareConfigError(TorqError):
    """A hardware description that no machine could have, or an unknown preset."""


class LramOverflowError(TorqError):
    """One tile of an operator does not fit the on-chip memory; carries a demand report."""


class ScheduleError(TorqError):
    """A decision record that does not apply to this model or machine."""


class KernelError(TorqError):
    """A loop nest that breaks a rule of the kernel DSL or exceeds a capacity of the slice."""


class ProgramFormatError(TorqError):
    """A container that is corrupted, truncated, or of a newer format."""


class VerificationError(TorqError):
    """A program that the verifier refuses; it is never run."""


class CalibrationError(TorqError):
    """Calibration or input data with wrong keys, shapes, types or values."""


class AccuracyError(TorqError):
    """An accuracy check that cannot be made: thresholds, labels or a metric that do not fit the model."""


class CommandLineError(TorqError):
    """Arguments that make no command: an unknown option, a missing file name, an output that is an input."""


class EnvironmentProblem(TorqError):
    """Something the work needs is missing on this machine: a library, a compiler, disk space."""


class InternalError(TorqError):
    """A defect of ours; the message names the repro bundle that was written."""


def _legible(text: str) -> str:
    """A part of a message without what nobody reads: values of thousands of characters."""
    if len(text) <= LONGEST_WORD:
        return text
    return _shortened(re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: _shortened(word[0], LONGEST_WORD), text), LONGEST)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    kept = limit // 2 - 20
    return f"{text[:kept]} ... {len(text) - 2 * kept} characters ... {text[-kept:]}"


MOST_NAMES = 20
"""Names that a remedy lists."""


def choose_from(name: str, known: Iterable[str]) -> str:
    """A remedy for a name that does not exist: the nearest one that does, if any is near, and the first of all."""
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    meant = f"did you mean {names[near[0]]!r}? " if near else ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{meant}use one of {', '.join(list(names.values())[:MOST_NAMES])}{more}"


def require_known(
    error: type[TorqError],
    noun: str,
    names: Iterable[str],
    known: Iterable[str],
    *,
    where: str = "",
    why: str = "",
    otherwise: str = "",
) -> None:
    """Refuse names that do not exist.

    Args:
        error: class of the error.
        noun: what the names are names of: "calibration method".
        names: those that are given.
        known: those that exist, in the order in which the remedy lists them.
        where, why: of the error.
        otherwise: what else can be done, after the list of names.

    Raises:
        TorqError: of class ``error``, for the first unknown name; the remedy suggests the nearest.
    """
    existing = list(known)
    for name in names:
        if name not in existing:
            remedy = f"{choose_from(name, existing)}{otherwise}"
            raise error(f"there is no {noun} {name!r}", where=where, why=why, remedy=remedy)


def unlike_names(missing: Collection[str], unknown: Collection[str], known: Iterable[str]) -> tuple[str, str]:
    """Why, and the remedy, of an error about arrays that are not named like what they are for."""
    lacks = f"missing: {', '.join(missing)}" if missing else ""
    surplus = f"unknown: {', '.join(unknown)}" if unknown else ""
    if missing and unknown:
        remedy = choose_from(next(iter(unknown)), known)
    elif unknown:
        remedy = f"leave {', '.join(unknown)} out"
    else:
        remedy = f"give {', '.join(missing)} as well"
    return "; ".join(filter(None, (lacks, surplus))), remedy
