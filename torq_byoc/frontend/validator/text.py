"""Names are text: protobuf reads a string field that is not UTF-8 without complaint, and hands it out as bytes."""

from __future__ import annotations

from google.protobuf.message import Message

from torq_byoc.errors import ModelFileError


def check_text(message: Message) -> None:
    """Refuse a model in which any string field, at any depth, is not valid UTF-8 (ModelFileError)."""
    try:
        _visit(message)
    except UnicodeDecodeError as error:
        raise _not_text(error.object) from error


def _visit(message: Message) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in [value] if isinstance(value, Message) else value:
                _visit(item)
        elif field.type == field.TYPE_STRING:
            for item in [value] if isinstance(value, (str, bytes)) else value:
                if isinstance(item, bytes):
                    raise _not_text(item)


def _not_text(found: bytes) -> ModelFileError:
    return ModelFileError(
        "A name in the model is not text",
        where=f"a name that starts with {found[:20]!r}",
        why="it is not valid UTF-8",
        remedy="export the model again; the file is damaged",
    )
