"""What a damaged input may lead to: success, or one message with an exit code of the contract, and no file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_LIBRARY_FILE = ".ses"
"""What onnxruntime itself leaves among the temporary files, which are in the command's folder here."""


@dataclass(frozen=True)
class Outcome:
    """How one command line ended; ``left`` are the files it made beside its messages."""

    code: int | None
    signal: int
    hung: bool
    stdout: str
    stderr: str
    left: tuple[str, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """The object that a command with ``--json`` printed; empty for others and for half an object."""
        with contextlib.suppress(ValueError):
            return json.loads(self.stdout)
        return {}

    @property
    def error(self) -> str | None:
        """The class of the error that ``--json`` names."""
        return self.facts.get("error")

    def fault(self, forbidden: Collection[str] = ("InternalError",), *, judges: bool = False) -> str:
        """What the outcome breaks of the contract, or an empty string.

        Args:
            forbidden: errors that the input at hand must not lead to, whatever is wrong with it.
            judges: whether the command may end with 1: what it was asked for is done, and not good enough.
        """
        messages = sum(line.startswith("error: ") for line in self.stderr.splitlines()) + bool(self.error)
        if self.hung:
            return "hangs"
        if self.signal or self.code not in (0, 1, 2):
            return f"ends with signal {self.signal}, code {self.code}"
        if "Traceback" in self.stderr or "internal error" in self.stderr:
            return "shows an internal failure"
        if self.error in forbidden:
            return f"ends with {self.error}: {self.facts['what']}"
        if "Warning: " in self.stderr:
            return "shows a warning that no user can act on"
        failed = self.code == 2 or (self.code == 1 and not judges)
        if messages != failed:
            return f"says {messages} errors with code {self.code}"
        if failed and self.left:
            return f"leaves {', '.join(self.left)}"
        return ""


class Torq:
    """The command line behind a fork server; ``folder`` is emptied before every command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, argv: Sequence[str | Path], given: dict[str, bytes] | None = None) -> Outcome:
        """Run a command in a folder that holds the given files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, data in (given or {}).items():
            (self.folder / name).write_bytes(data)
        assert self._server.stdin and self._server.stdout
        request = {"argv": [str(argument) for argument in argv], "folder": str(self.folder)}
        print(json.dumps(request), file=self._server.stdin, flush=True)
        answer = json.loads(self._server.stdout.readline())
        known = {"stdout", "stderr", _LIBRARY_FILE, *(given or {})}
        left = tuple(sorted(entry.name for entry in self.folder.iterdir() if entry.name not in known))
        texts = [(self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        return Outcome(answer["code"], answer["signal"], answer["hung"], *texts, left)

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(timeout=30)
