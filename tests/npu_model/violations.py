"""What the verifier says of a program."""

from __future__ import annotations

from torq_byoc.npu_model.verifier import Violation, check


def physical(program) -> list[Violation]:
    """What is wrong with what a program does, whatever is declared about it."""
    return check(program, buffers=False, seals=False)


def rules(program) -> set[str]:
    return {violation.rule for violation in physical(program)}
