"""The report as one HTML file: no script, style, font or picture from elsewhere, so it opens offline."""

from __future__ import annotations

from typing import Any

from torq_byoc.report.measure import Measurement
from torq_byoc.report.page.comparison import FIGURES, compare
from torq_byoc.report.page.decisions import decisions
from torq_byoc.report.page.environment import page_environment
from torq_byoc.report.page.naming import Naming, earlier_naming, own_naming
from torq_byoc.report.page.roofline import HEIGHT, WIDTH, roofline
from torq_byoc.report.page.tenancies import KINDS
from torq_byoc.report.page.timeline import TimePicture, time_picture
from torq_byoc.report.summary import summary_of


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
    template = page_environment().get_template("report.html")
    return template.render(
        **context,
        summary=summary,
        figures=FIGURES,
        kinds=KINDS,
        roofline_size=(WIDTH, HEIGHT),
        naming=naming,
        time=_picture(measurement, naming, span),
        roofline=roofline(summary["layers"], machine, measurement.profile) if machine else None,
        decisions=decisions(measurement.model),
        savings=sorted({key for entry in summary["passes"] for key in entry["saved"]}),
    )


def _picture(measurement: Measurement, naming: Naming, span: int) -> TimePicture | None:
    """None when nothing runs on the NPU."""
    return time_picture(measurement, naming, span) if measurement.total_cycles else None
