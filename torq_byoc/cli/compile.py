"""``torq compile``: ONNX in, a verified .torq container out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torq_byoc.cli.options import PATH, Outcome, json_option, model_options, profile_option, progress
from torq_byoc.cli.request import compile_request, files_read
from torq_byoc.cli.targets import check_targets


@click.command(name="compile")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, help="Container to write; default MODEL.torq.")
@model_options
@click.option("--dump-ir", "dump", type=PATH, help="Write every level of IR to this folder.")
@click.option("--explain", is_flag=True, help="Tell what was decided for every layer.")
@profile_option
@json_option
def command(
    model: Path, output: Path | None, dump: Path | None, explain: bool, profile: str, as_json: bool, **request: Any
) -> Outcome:
    """Compile MODEL for the NPU."""
    from torq_byoc.report.summary import summarize
    from torq_byoc.report.tables import print_explanation, print_summary

    output = output or Path(f"{model.stem}.torq")
    check_targets({"-o": output}, {"MODEL": model, **files_read(**request)}, {"--dump-ir": dump})
    with progress(None, f"compiling {model.name}") as step:
        compiled = compile_request(model, dump=dump, step=step, **request)
    summary = summarize(compiled, profile)
    compiled.save(output)
    if not as_json:
        print_summary(summary)
        if explain:
            print_explanation(summary, compiled)
        click.echo(f"wrote {output}")
    return Outcome({**summary, "output": str(output)})
