"""Every path that a command reads, led to what is no ordinary file: refused at once, with the kind and a remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.refusals import assert_refused, files_in
from tests.cli.tools import Workspace


def _compile(*before: object) -> Callable[[Workspace, Path, Path], tuple]:
    return lambda space, bad, target: ("compile", space.model, "-o", target, *before, bad)


READERS: dict[str, tuple[str, Callable[[Workspace, Path, Path], tuple]]] = {
    "model": ("ModelFileError", lambda space, bad, target: ("compile", bad, "-o", target)),
    "model of ops": ("ModelFileError", lambda space, bad, target: ("ops", bad)),
    "model of bench": ("ModelFileError", lambda space, bad, target: ("bench", bad)),
    "calibration": ("CalibrationError", _compile("--calib")),
    "hardware": ("HardwareConfigError", _compile("--hw")),
    "schedule": ("ScheduleError", _compile("--schedule")),
    "container of run": (
        "ProgramFormatError",
        lambda space, bad, target: ("run", bad, "--input", space.inputs, "--output", target),
    ),
    "container of inspect": ("ProgramFormatError", lambda space, bad, target: ("inspect", bad)),
    "input of run": (
        "CalibrationError",
        lambda space, bad, target: ("run", space.int8, "--input", bad, "--output", target),
    ),
}


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


SPECIAL: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "pipe": ("it is a pipe", _pipe),
    "endless device": ("it is a device", lambda _: Path("/dev/zero")),
    "folder": ("it is a folder", lambda folder: _made(folder / "folder")),
    "missing": ("No such file", lambda folder: folder / "none.yaml"),
    "below a file": ("Not a directory", lambda _: Path(__file__) / "x"),
}


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_special_files(reader, special, workspace, tmp_path, capsys):
    why, make = SPECIAL[special]
    error, command = READERS[reader]
    bad = make(tmp_path)
    before = files_in(tmp_path)
    message = assert_refused(capsys, error, *command(workspace, bad, tmp_path / "out"))
    assert str(bad) in message["where"]
    if (reader, special) != ("calibration", "folder"):  # a folder of samples is welcome; this one is empty
        assert why in message["why"]
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("name", ["/proc/cpuinfo", "/proc/kmsg"])
@pytest.mark.parametrize("reader", READERS)
def test_files_of_the_kernel(reader, name, workspace, tmp_path, capsys):
    if not Path(name).exists():
        pytest.skip("no such file here")
    error, command = READERS[reader]
    assert_refused(capsys, error, *command(workspace, Path(name), tmp_path / "out"))
    assert files_in(tmp_path) == set()
