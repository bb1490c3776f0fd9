"""The decision record as tables, whatever fields a decision has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.compiled_model import CompiledModel

_TITLES = {"groups": "fused groups", "resident": "tensors that stay in LRAM", "nodes": "nodes"}
_ORDER = ("groups", "resident", "nodes")


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Decisions:
    """The decisions of one partition; ``text`` is what ``--schedule`` takes."""

    partition: str
    tables: tuple[Table, ...]
    text: str


def decisions(model: CompiledModel) -> list[Decisions]:
    """The decisions of every partition."""
    return [Decisions(p.facts.symbol, tuple(_tables(p.facts.decisions)), p.facts.decisions) for p in model.partitions]


def _tables(text: str) -> Iterable[Table]:
    record = json.loads(text)
    keys = sorted(record, key=lambda key: (_ORDER.index(key) if key in _ORDER else len(_ORDER), key))
    for key in keys:
        entries = record[key]
        title = _TITLES.get(key, key)
        if isinstance(entries, list) and entries:
            yield _table(title, [("", entry) for entry in entries])
        elif isinstance(entries, dict) and entries:
            named = [(name, value if isinstance(value, dict) else {"value": value}) for name, value in entries.items()]
            yield _table(title, named)


def _table(title: str, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    fields = tuple(dict.fromkeys(field for _, entry in entries for field in entry))
    named = any(name for name, _ in entries)
    rows = tuple(
        (*((name,) if named else ()), *(_text(entry[field]) if field in entry else "" for field in fields))
        for name, entry in entries
    )
    return Table(title, (*(("name",) if named else ()), *fields), rows)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)
