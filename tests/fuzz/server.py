"""Runs command lines of ``torq``, each in a forked process of its own that has everything imported already.

Reads one JSON object a line on stdin ({"argv": [...], "folder": "..."}) and answers with one on stdout.  A
child works in its folder, may use ``CPU_SECONDS`` of processor time (then it counts as hung, whatever else
the machine is doing) and ``MEMORY_BYTES`` of address space.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

CPU_SECONDS = 10
WALL_SECONDS = 120
MEMORY_BYTES = 12 << 30
PRELOADED = (
    "torq_byoc.compiler",
    "torq_byoc.host_module",
    "torq_byoc.quantize.data",
    "torq_byoc.cli.compile",
    "torq_byoc.cli.inspect",
    "torq_byoc.cli.run",
    "torq_byoc.report.summary",
    "torq_byoc.report.disassembly",
)


def child(argv: list[str], folder: Path) -> None:
    """The life of one child; does not return."""
    code = 70
    with contextlib.suppress(BaseException):
        os.chdir(folder)
        os.environ["TMPDIR"] = str(folder)
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            import_module("torq_byoc.cli.main").main(argv)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 70
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def serve(argv: list[str], folder: Path) -> dict[str, object]:
    """Run one command line and say how it ended."""
    started = time.monotonic()
    pid = os.fork()
    if not pid:
        child(argv, folder)
    status = None
    while status is None:
        done, ended = os.waitpid(pid, os.WNOHANG)
        if done:
            status = ended
        elif time.monotonic() - started > WALL_SECONDS:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"code": None, "signal": 0, "hung": True}
        else:
            time.sleep(0.002)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    hung = number == signal.SIGXCPU or number == signal.SIGKILL and time.monotonic() - started >= CPU_SECONDS
    return {"code": None if number else os.WEXITSTATUS(status), "signal": number, "hung": hung}


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in PRELOADED:
        import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(serve(request["argv"], Path(request["folder"]))), file=answers, flush=True)


if __name__ == "__main__":
    main()
