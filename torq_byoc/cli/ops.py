"""``torq ops``: what maps to the NPU, as composition, to the CPU, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torq_byoc.cli.options import PATH, Outcome, json_option, model_options, progress, refuse_unused
from torq_byoc.files import shown_name


@click.command(name="ops")
@click.argument("model", type=PATH, required=False)
@model_options
@click.option("--markdown", is_flag=True, help="Print the operator table as docs/operators.md has it.")
@json_option
def command(model: Path | None, markdown: bool, as_json: bool, **request: Any) -> Outcome:
    """Show where the nodes of MODEL run, or without MODEL what is done with every operator."""
    if model is None:
        refuse_unused(request, "they are about a model, and none is given")
        return _all_operators(markdown, as_json)
    refuse_unused(["markdown"], "the document is about operators, not about a model")
    refuse_unused(
        ["record", "records", "effort", "disabled"], "they are about schedules, and nothing is scheduled here"
    )
    from torq_byoc.cli.request import options_of, refuse_container
    from torq_byoc.frontend import load_model
    from torq_byoc.report.model_coverage import model_coverage
    from torq_byoc.report.tables import print_coverage

    refuse_container(model)
    options = options_of(**request)
    with progress(None, f"partitioning {shown_name(model)}"):
        coverage = model_coverage(load_model(model), options, shown_name(model))
    if not as_json:
        print_coverage(coverage)
    return Outcome(coverage)


def _all_operators(markdown: bool, as_json: bool) -> Outcome:
    from torq_byoc.report.operator_probes import PROBES
    from torq_byoc.report.operators import operator_table, table_data
    from torq_byoc.report.operators_markdown import markdown_table
    from torq_byoc.report.tables import print_operators

    with progress(len(PROBES), "compiling a probe of each operator") as step:
        data = table_data(operator_table(step))
    if markdown:
        click.echo(markdown_table(data), nl=False)
    elif not as_json:
        print_operators(data)
    return Outcome(data)
