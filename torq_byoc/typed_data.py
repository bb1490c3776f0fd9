"""Floor 0: plain data as typed structs, with errors that name the place.

``msgspec`` writes ``[...]`` for the key of an object: which of a hundred tensors has the wrong type is left to the
reader.  Here the keys stand in the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_SOME_KEY = "[...]"


def typed(data: Any, kind: type[_T], *, strict: bool = True) -> _T:
    """``msgspec.convert``.

    Raises:
        msgspec.ValidationError: the data are none of that kind; says where, such as ``$.tensors['x'].dtype``.
    """
    try:
        return msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as error:
        message = str(error)
    for key in _keys_at_fault(data, kind, message, strict):
        message = message.replace(_SOME_KEY, f"[{key!r}]", 1)
    raise msgspec.ValidationError(message)


def _keys_at_fault(data: Any, kind: type, message: str, strict: bool) -> Iterator[str]:
    """A key for every ``[...]`` of a message, in order: data that have no other key there are refused alike."""
    steps = re.findall(r"\w+|\[\d+\]|\[\.\.\.\]", message.rpartition("`$")[2])
    path: list[Any] = []
    for step in steps:
        if step != _SOME_KEY:
            path.append(int(step[1:-1]) if step.startswith("[") else step)
            continue
        alike = (key for key in _at(data, path) if _message(_alone(data, [*path, key]), kind, strict) == message)
        key = next(alike, None)
        if key is None:  # it depends on others beside it
            return
        data = _alone(data, [*path, key])
        path.append(key)
        yield str(key)


def _at(data: Any, path: list[Any]) -> Any:
    for step in path:
        data = data[step]
    return data


def _alone(data: Any, path: list[Any]) -> Any:
    """The data with no other key beside the last one of a path."""
    step, *rest = path
    if not rest:
        return {step: data[step]}
    inner = _alone(data[step], rest)
    if isinstance(data, Mapping):
        return {**data, step: inner}
    return [inner if index == step else entry for index, entry in enumerate(data)]


def _message(data: Any, kind: type, strict: bool) -> str:
    try:
        msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
