"""The repro bundle of an internal error: what somebody needs to see the same failure."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

from torq_byoc.errors import InternalError, TorqError
from torq_byoc.files import Expected, read_ordinary, shown_name

PACKAGES = ("torq-byoc", "apache-tvm", "onnx", "numpy", "onnxruntime")
_INPUT = Expected(InternalError, "an input", "leave it out of the bundle", 64 << 20)


def write_bundle(arguments: list[str], trace: str) -> Path:
    """Write command, versions, stack and the input files named on the command line to a zip.

    Args:
        arguments: the command line after ``torq``.
        trace: the formatted stack of the failure.

    Returns:
        Path of the bundle.
    """
    handle, name = tempfile.mkstemp(prefix="torq-repro-", suffix=".zip")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("command.json", json.dumps(["torq", *arguments], indent=2))
        bundle.writestr("versions.json", json.dumps(_versions(), indent=2))
        bundle.writestr("trace.txt", trace.encode("utf-8", "backslashreplace"))
        for place, path in _places(arguments).items():
            with contextlib.suppress(TorqError):
                bundle.writestr(place, read_ordinary(path, _INPUT))
    return Path(name)


def _places(arguments: list[str]) -> dict[str, Path]:
    """Where arguments stand in the bundle if they are files: each once, others of the same name in a folder apart."""
    found: dict[str, Path] = {}
    for position, argument in enumerate(dict.fromkeys(arguments)):
        path = Path(argument)
        place = f"inputs/{shown_name(path)}"
        found[f"inputs/{position}/{shown_name(path)}" if place in found else place] = path
    return found


def _versions() -> dict[str, str]:
    versions = {"python": sys.version, "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions
