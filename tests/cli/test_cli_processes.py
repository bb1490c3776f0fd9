"""What only a process of its own shows: start-up time, exit codes, stdout purity, determinism."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys

import pytest

import torq_byoc
from torq_byoc.cli.main import COMMANDS


def torq(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torq_byoc", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick_and_imports_nothing_heavy():
    """Counted in processor time, which other work on the machine does not change."""
    started = _processor_seconds()
    result = torq("--help")
    assert _processor_seconds() - started < 0.5
    assert result.returncode == 0
    assert all(name in result.stdout for name in COMMANDS)
    code = (
        "import sys\nfrom torq_byoc.cli.main import _run\n"
        "assert _run(['--help']) == 0\n"
        "sys.exit(bool({'tvm', 'onnx', 'numpy', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_version_and_bare_call():
    assert torq("--version").stdout.strip() == f"torq, version {torq_byoc.__version__}"
    bare = torq()
    assert bare.returncode == 0 and bare.stdout == torq("--help").stdout and bare.stderr == ""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command):
    result = torq(command, "--help")
    assert result.returncode == 0 and "--json" in result.stdout and result.stderr == ""


def test_json_is_all_there_is_on_stdout(workspace, tmp_path):
    good = torq("compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", workspace.calibration, "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["model"] == "tiny.onnx"
    bad = torq("inspect", workspace.model, "--json")
    assert bad.returncode == 2 and json.loads(bad.stdout)["error"] == "ProgramFormatError"
    assert "Traceback" not in good.stderr + bad.stderr


def test_text_goes_to_stdout_and_errors_to_stderr(workspace, tmp_path):
    good = torq("inspect", workspace.int8)
    assert good.returncode == 0 and good.stderr == "" and "cycles" in good.stdout
    bad = torq("inspect", tmp_path / "none.torq")
    assert bad.returncode == 2 and bad.stdout == "" and bad.stderr.startswith("error: ")


def test_a_reader_that_stops_early_is_no_failure(workspace):
    inspect = f"{sys.executable} -m torq_byoc inspect {workspace.int8} --disassemble --lines 0"
    command = f"{inspect} | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "Traceback" not in result.stderr


def test_a_reader_that_stops_early_does_not_hide_a_failure(workspace, tmp_path):
    """A gate that only looks for a word must not let a model pass."""
    compiled = f"{sys.executable} -m torq_byoc compile {workspace.model} --calib {workspace.calibration}"
    missed = f"{compiled} -o {tmp_path / 'm.torq'} --precision mixed --target-sqnr 190"
    for reader in ("true", "head -c 1"):
        command = f"{missed} | {reader} > /dev/null; exit ${{PIPESTATUS[0]}}"
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert result.returncode == 1 and "Traceback" not in result.stderr and "rror" not in result.stderr
    both = f"{missed} --json 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", both], capture_output=True, check=False).returncode == 1


def test_containers_do_not_depend_on_hash_seed_or_threads(workspace, tmp_path):
    digests = set()
    for seed, threads in (("0", "1"), ("4242", "2")):
        target = tmp_path / f"{seed}.torq"
        result = torq(
            "compile", workspace.model, "-o", target, "--calib", workspace.calibration,
            PYTHONHASHSEED=seed, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, TVM_NUM_THREADS=threads,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        digests.add(hashlib.sha256(target.read_bytes()).hexdigest())
    assert digests == {hashlib.sha256(workspace.int8.read_bytes()).hexdigest()}


def test_containers_name_no_path(workspace):
    data = workspace.int8.read_bytes()
    assert str(workspace.folder).encode() not in data and b"torq_byoc/" not in data
