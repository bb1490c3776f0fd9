"""YAML that users write: the safe subset, without aliases and repeated keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        ValueError: it is malformed, has an alias or the same key twice, or is nested too deeply; says where.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
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
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is repeated", node.value[position][0].start_mark
                )
        return dict(super().construct_mapping(node, deep))
