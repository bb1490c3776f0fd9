"""Standard output and standard error that take nothing: one message and exit code 2, never a stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "help": ("--help",),
    "bare": (),
    "version": ("--version",),
    "help of a command": ("compile", "--help"),
    "doctor": ("doctor",),
    "doctor --json": ("doctor", "--json"),
    "inspect": ("inspect", "{container}"),
    "inspect --disassemble": ("inspect", "{container}", "--disassemble", "--lines", "0"),
    "inspect --json": ("inspect", "{container}", "--json"),
    "ops": ("ops", "{model}"),
    "error as JSON": ("inspect", "{missing}", "--json"),
}


def _run(workspace, tmp_path, case: str, redirection: str) -> subprocess.CompletedProcess[str]:
    names = {"container": workspace.int8, "model": workspace.model, "missing": tmp_path / "none.torq"}
    arguments = [argument.format(**names) for argument in COMMANDS[case]]
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {redirection}', "bash", sys.executable, "-m", "torq_byoc", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("case", COMMANDS)
def test_a_full_output_is_one_error(case, workspace, tmp_path):
    result = _run(workspace, tmp_path, case, "> /dev/full")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: the output cannot be written",
        "where: standard output",
        "why: No space left on device",
        "try: free disk space, or send the output to another place",
    ]
    assert not list(tmp_path.glob("torq-repro-*")), "a full disk is no defect"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("case", ["help", "inspect", "inspect --json", "error as JSON"])
def test_with_both_full_there_is_the_exit_code(case, workspace, tmp_path):
    assert _run(workspace, tmp_path, case, "> /dev/full 2> /dev/full").returncode == 2
    assert not list(tmp_path.glob("torq-repro-*"))


@pytest.mark.parametrize("case", ["version", "inspect", "inspect --json"])
def test_a_closed_output_is_an_error(case, workspace, tmp_path):
    result = _run(workspace, tmp_path, case, ">&-")
    assert result.returncode == 2 and "why: it is closed" in result.stderr and "Traceback" not in result.stderr
    assert _run(workspace, tmp_path, case, ">&- 2>&-").returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_stderr_alone_does_not_hide_the_result(workspace, tmp_path):
    result = _run(workspace, tmp_path, "inspect --json", "2> /dev/full")
    assert result.returncode == 0 and json.loads(result.stdout)["model"] == "tiny.onnx"
