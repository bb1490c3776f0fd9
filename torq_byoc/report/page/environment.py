"""How pages are made of templates: escaping, the files of ours that go into them, and the form of numbers."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from torq_byoc.report.layers import directions
from torq_byoc.report.page.naming import COLOURS

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@cache
def page_environment() -> Environment:
    """The templates of ``report/templates``; pages are valid as HTML and as XML."""
    environment = Environment(
        loader=PackageLoader("torq_byoc.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _source(environment, "script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(
        style=Markup(_source(environment, "style.css")),
        script=Markup(script),
        script_digest=digest,
        colours=COLOURS,
    )
    environment.filters.update(number=_number, moved=directions)
    return environment


def _source(environment: Environment, name: str) -> str:
    """A file of ours that goes into the page as it is."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _printable(value: Any) -> Any:
    """Without the characters that no XML or HTML may have; names of models may hold them."""
    return _UNPRINTABLE.sub("\ufffd", value) if type(value) is str else value


def _number(value: float | None, digits: int = 0) -> str:
    """With separators for thousands; a dash for what is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"
