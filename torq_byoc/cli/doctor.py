"""``torq doctor``: is this machine fit for the work, and which references can be trusted on it."""

from __future__ import annotations

import click

from torq_byoc.cli.options import Outcome, json_option, progress


@click.command(name="doctor")
@json_option
def command(as_json: bool) -> Outcome:
    """Check this machine: versions, LLVM, C compiler, onnxruntime's integer kernels."""
    from torq_byoc.report.environment import examine

    with progress(None, "probing"):
        found = examine()
    if not as_json:
        for check in found["checks"]:
            click.echo(f"{check['status']:8} {check['name']:14} {check['detail']}")
        click.echo(f"integer results are compared with: {found['integer_reference']}")
        click.echo(f"float results are compared with:   {found['float_reference']}")
    return Outcome(found, 0 if found["healthy"] else 1)
