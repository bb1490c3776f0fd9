"""YAML that users write: the safe subset, without aliases and repeated keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from torq_byoc.files import whole_text


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        ValueError: it is malformed, has an alias, the same key twice or a string that is no text, or is nested too
            deeply; says where.
    """
    try:
        return whole_text(yaml.load(text, Loader=_Loader))  # noqa: S506  (a SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the library has no type hints
    """The safe loader without aliases (a few lines of them expand to gigabytes) and repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed here", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        known: set[Hashable] = set()
        for place, _ in node.value:
            key = self.construct_object(place, deep=True)
            if not isinstance(key, Hashable):
                continue  # the safe loader refuses it below
            if key in known:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is repeated", place.start_mark)
            known.add(key)
        return dict(super().construct_mapping(node, deep))
