"""Paths that a command writes: refused before any time is spent on their content, if they cannot work."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torq_byoc.errors import CommandLineError, EnvironmentProblem
from torq_byoc.files import special_kind

DUMP_NAME = "{number:02d}-{level}.txt"
_DUMPED = re.compile(r"\d{2,}-.*\.txt")
_LEVEL = re.compile(r"\d{2,}-(tensor|scheduled|torq_hl|torq_hw)-[a-z-]+\.txt")


def check_targets(
    files: Mapping[str, Path | None],
    sources: Mapping[str, Path | None],
    folders: Mapping[str, Path | None] | None = None,
) -> None:
    """Refuse outputs that would replace each other, an input, or what is no ordinary file.

    Args:
        files: files to be written, by option; None where the option is not given.
        sources: files and folders that are read, by option or argument.
        folders: folders that get files named like ``DUMP_NAME``.

    Raises:
        CommandLineError: an output is another path of the command, or a folder, device or pipe.
        EnvironmentProblem: the folder of an output does not exist or may not be written.
    """
    written = {option: path for option, path in files.items() if path}
    filled = {option: path for option, path in (folders or {}).items() if path}
    read = {option: path for option, path in sources.items() if path}
    try:
        for option, path in written.items():
            _check_file(option, path)
        for option, path in filled.items():
            _check_folder(option, path)
        _check_clashes({**written, **filled}, read)
        for option, folder in filled.items():
            _check_dumps(option, folder, {**written, **read})
    except OSError as error:
        raise EnvironmentProblem(
            "an output path cannot be used",
            where=str(error.filename),
            why=error.strerror or str(error),
            remedy="write to another place",
        ) from error


def _check_file(option: str, path: Path) -> None:
    kind = _kind(path)
    if kind:
        raise _refused(option, path, f"it is {kind}", "name a file")
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise EnvironmentProblem(
            "the output folder does not exist", where=str(parent), remedy="create it, or write somewhere else"
        )
    if not os.access(parent, os.W_OK):
        raise EnvironmentProblem(
            "the output folder may not be written", where=str(parent), remedy="write somewhere else"
        )


def _check_folder(option: str, path: Path) -> None:
    kind = _kind(path) if path.exists() else "a folder"
    if kind != "a folder":
        raise _refused(option, path, f"it is {kind or 'a file'}", "name a folder")


def _check_clashes(written: Mapping[str, Path], read: Mapping[str, Path]) -> None:
    others = dict(read)
    for option, path in written.items():
        for other, place in _with_members(others):
            if _same(path, place):
                raise _refused(option, path, f"{other} of this command is the same path", "name another path")
        others[option] = path


def _with_members(paths: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """All paths, and the npz files of those that are folders: each is a sample that is read."""
    for option, path in paths.items():
        yield option, path
        yield from ((option, member) for member in path.glob("*.npz") if path.is_dir())


def _check_dumps(option: str, folder: Path, others: Mapping[str, Path]) -> None:
    """Files of the folder are named by level, so an equal name elsewhere in the command would be lost."""
    for other, path in others.items():
        if _DUMPED.fullmatch(path.name) and _same(path.absolute().parent, folder):
            raise _refused(other, path, f"{option} writes files of such names there", "name another path")


def former_dump(folder: Path) -> list[Path]:
    """Files that an earlier ``--dump-ir`` wrote to a folder."""
    return sorted(path for path in folder.iterdir() if _LEVEL.fullmatch(path.name) and not _kind(path))


def _kind(path: Path) -> str:
    try:
        return special_kind(path)
    except FileNotFoundError:
        return ""


def _same(first: Path, second: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second) or (
        first.exists() and second.exists() and first.samefile(second)
    )


def _refused(option: str, path: Path, why: str, remedy: str) -> CommandLineError:
    return CommandLineError("the output cannot go there", where=f"{option} {path}", why=why, remedy=remedy)
