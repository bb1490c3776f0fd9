"""How the commands of a fuzzing run ended."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.harness import Outcome

DEFECTS = ("InternalError", "VerificationError", "KernelError")
"""What no model may lead to, whatever is wrong with it: these blame the compiler."""


class Tally:
    """Counts how commands ended, and keeps what must not happen."""

    def __init__(self) -> None:
        self.codes: Counter = Counter()
        self.faults: list[str] = []

    def add(
        self, seed: int, what: str, outcome: Outcome, forbidden: tuple[str, ...] = DEFECTS[:1], *, judges: bool = False
    ) -> None:
        """Take an outcome in; arguments as of ``Outcome.fault``."""
        self.codes[outcome.code] += 1
        fault = outcome.fault(forbidden, judges=judges)
        if fault:
            self.faults.append(f"seed {seed}, {what}: {fault}\n{outcome.stderr[-800:]}")

    def judge(self, both: bool = True) -> None:
        """Nothing may be wrong, some damage must be seen, and some must not matter."""
        assert not self.faults, f"{len(self.faults)} of {self.codes.total()}\n" + "\n".join(self.faults[:10])
        assert self.codes[2] > 0
        assert self.codes[0] + self.codes[1] > 0 or not both
