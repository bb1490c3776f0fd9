"""Standard output and standard error where they cannot be written: a full disk, a closed descriptor."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from io import TextIOWrapper
from typing import TextIO

from torq_byoc.errors import EnvironmentProblem

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def output_problem(error: OSError) -> EnvironmentProblem | None:
    """What an error of a standard stream means to the user; None for an error of anything else.

    Errors of an open stream name no file, and all files that commands open have a message of their own.
    """
    if error.filename is not None or error.errno not in _UNWRITABLE:
        return None
    return unwritable(error.strerror or str(error))


def unwritable(why: str) -> EnvironmentProblem:
    """The error for a standard output that takes nothing."""
    return EnvironmentProblem(
        "the output cannot be written",
        where="standard output",
        why=why,
        remedy="free disk space, or send the output to another place",
    )


class _Unheard(TextIOWrapper):
    """A stream that goes on when its reader, such as ``head``, has seen enough and closed the pipe.

    The command then ends as it would have ended, with its own exit code.
    """

    def write(self, text: str) -> int:
        """Write text, to nowhere once nobody reads."""
        try:
            return super().write(text)
        except BrokenPipeError:
            drop(self)
            return len(text)

    def flush(self) -> None:
        """Flush, to nowhere once nobody reads."""
        try:
            super().flush()
        except BrokenPipeError:
            drop(self)


def outlast_readers() -> None:
    """Let standard output and error go on when nobody reads them any more; streams of others' making stay."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is TextIOWrapper:
            encoding, errors, line_buffering = stream.encoding, stream.errors, stream.line_buffering
            setattr(sys, name, _Unheard(stream.detach(), encoding, errors, line_buffering=line_buffering))


def accept_all_text(stream: TextIO) -> None:
    """Let a stream write characters that its encoding lacks, and names of files that are no text, as escapes."""
    if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


def settle() -> None:
    """Write what is left in the standard streams; what cannot be written is dropped without a word.

    The interpreter flushes both when it ends, and would print a stack for a stream that fails then.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (OSError, ValueError):
                drop(stream)


def drop(stream: TextIO) -> None:
    """Let everything that is still written to a stream vanish."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
