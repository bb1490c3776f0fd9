"""What every refusal of the command line has in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.tools import torq


def assert_refused(capsys, error: str, *arguments: object) -> dict:
    """Both forms of the message: JSON on stdout alone, text on stderr alone."""
    result = torq(capsys, *arguments, "--json")
    assert result.code == 2, result.out
    message = result.json
    assert set(message) == {"error", "what", "where", "why", "try", "details"}
    assert message["error"] == error, message
    assert message["what"] and message["where"], "a failure says what failed, and where"
    assert message["try"], "a failure says what to do about it"
    plain = torq(capsys, *arguments)
    assert plain.code == 2 and plain.out == ""
    assert plain.err.startswith("error: ") and "Traceback" not in plain.err
    return message


def files_in(folder: Path) -> set[Path]:
    """Everything below a folder."""
    return set(folder.rglob("*"))


def written(path: Path, data: bytes) -> Path:
    """A file with some content."""
    path.write_bytes(data)
    return path


def npz(folder: Path, **arrays: np.ndarray) -> Path:
    """An npz of some arrays."""
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"
