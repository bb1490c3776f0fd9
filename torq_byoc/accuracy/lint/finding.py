"""What a rule has to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What a finding means for shipping."""

    ERROR = "error"
    """Results are wrong, whatever the figures on this data say, or there will be no program: not to be shipped."""
    WARNING = "warning"
    """Results may be worse than they need to be; the figures say whether they are."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True)
class LintFinding:
    """One finding.

    Attributes:
        rule: name of the rule that made it.
        severity: what it means for shipping.
        where: node, tensor or input concerned.
        what: the fact, with its figure against the limit.
        remedy: what to do about it.
    """

    rule: str
    severity: Severity
    where: str
    what: str
    remedy: str
