"""The report as one HTML file: no script, style, font or picture from elsewhere, so it opens offline."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from torq_byoc.report.layers import directions
from torq_byoc.report.measure import Measurement
from torq_byoc.report.page.comparison import FIGURES, compare
from torq_byoc.report.page.decisions import decisions
from torq_byoc.report.page.naming import COLOURS, Naming, earlier_naming, own_naming
from torq_byoc.report.page.roofline import HEIGHT, WIDTH, roofline
from torq_byoc.report.page.tenancies import KINDS
from torq_byoc.report.page.timeline import TimePicture, time_picture
from torq_byoc.report.summary import summary_of

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def html_report(measurement: Measurement, before: Measurement | None = None) -> str:
    """The report on a compiled model, a page that is valid as HTML and as XML.

    Args:
        measurement: of the model.
        before: of another compile of the same model under the same profile, to compare with.

    Raises:
        ProgramFormatError: a job of a damaged container belongs to no layer.
    """
    summary = summary_of(measurement)
    context: dict[str, Any] = {"before": None, "comparison": None, "time_before": None}
    span = measurement.total_cycles
    if before:
        earlier = summary_of(before)
        comparison = compare(earlier, summary)
        span = max(span, before.total_cycles)
        naming = earlier_naming(earlier["layers"], comparison)
        context = {"before": earlier, "comparison": comparison, "time_before": _picture(before, naming, span)}
    naming = own_naming(summary["layers"])
    machine = measurement.config
    template = _environment().get_template("report.html")
    return template.render(
        **context,
        summary=summary,
        naming=naming,
        time=_picture(measurement, naming, span),
        roofline=roofline(summary["layers"], machine, measurement.profile) if machine else None,
        decisions=decisions(measurement.model),
        savings=sorted({key for entry in summary["passes"] for key in entry["saved"]}),
    )


def _picture(measurement: Measurement, naming: Naming, span: int) -> TimePicture | None:
    """None when nothing runs on the NPU."""
    return time_picture(measurement, naming, span) if measurement.total_cycles else None


@cache
def _environment() -> Environment:
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
        figures=FIGURES,
        kinds=KINDS,
        roofline_size=(WIDTH, HEIGHT),
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
