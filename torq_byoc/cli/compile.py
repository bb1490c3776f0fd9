"""``torq compile``: ONNX in, a verified .torq container out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torq_byoc.cli.options import (
    NAME,
    PATH,
    Outcome,
    json_option,
    model_options,
    planning_options,
    profile_option,
    progress,
    refuse_unused,
)
from torq_byoc.cli.request import compile_request, exit_code_of, files_read, plan_to_write, refuse_given
from torq_byoc.cli.targets import check_targets
from torq_byoc.files import new_folder, parse_json, shown_name, write_together

if TYPE_CHECKING:
    from torq_byoc.compiled_model import CompiledModel
    from torq_byoc.report.measure import Measurement
    from torq_byoc.report.story import Level


@click.command(name="compile")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, help="Container to write; default MODEL.torq.")
@model_options
@click.option("--dump-ir", "dump", type=PATH, help="Write every level of IR to this folder; replaces an earlier dump.")
@click.option("--explain", is_flag=True, help="Tell what was decided for every layer.")
@click.option("--save-schedule", "decisions", type=PATH, help="Write all decisions, for --schedule.")
@planning_options
@click.option(
    "--explain-layer", "layer", type=NAME, metavar="NAME", help="Tell the story of one layer through all levels."
)
@click.option(
    "--report", type=PATH, help="HTML report to write: timeline, memory, layers, roofline, passes, decisions."
)
@click.option(
    "--compare",
    "earlier",
    type=PATH,
    metavar="OTHER.torq",
    help="Show another compile of the same model beside this one in the report.",
)
@profile_option
@json_option
def command(
    model: Path,
    output: Path | None,
    dump: Path | None,
    explain: bool,
    decisions: Path | None,
    planned: Path | None,
    layer: str | None,
    report: Path | None,
    earlier: Path | None,
    profile: str,
    as_json: bool,
    **request: Any,
) -> Outcome:
    """Compile MODEL for the NPU."""
    from torq_byoc.report.measure import measure
    from torq_byoc.report.story import recorder
    from torq_byoc.report.summary import summary_of
    from torq_byoc.report.tables import print_explanation, print_summary

    if not report:
        refuse_unused(["earlier"], "it is about --report")
    if request["precision"] != "mixed":
        refuse_given({"--save-precision-plan": planned})
    output = output or Path(f"{model.stem}.torq")
    read = {"MODEL": model, **files_read(**request), "--compare": earlier}
    written = {"-o": output, "--report": report, "--save-schedule": decisions, "--save-precision-plan": planned}
    check_targets(written, read, {"--dump-ir": dump})
    before = _measured(earlier, profile) if earlier else None
    with progress(None, f"compiling {shown_name(model)}") as step:
        levels: list[Level] = []
        watch = recorder(levels) if layer or dump else None
        compiled = compile_request(model, profile=profile, watch=watch, step=step, **request)
    story = _story(model, compiled, levels, layer) if layer else []
    measurement = measure(compiled, profile)
    summary = summary_of(measurement)
    files = {output: compiled.to_bytes()}
    if report:
        files[report] = _page(measurement, before, earlier).encode()
    if decisions:
        files[decisions] = compiled.decisions().dumps().encode()
    if planned:
        files[planned] = plan_to_write(compiled.planned)
    _write(files, dump, levels, compiled)
    if not as_json:
        print_summary(summary)
        if explain:
            print_explanation(summary, compiled)
        for line in story:
            click.echo(line)
        for path in filter(None, (output, report, decisions, planned, dump)):
            click.echo(f"wrote {path}")
    told = _told(compiled, story if layer else None, explain)
    facts = {**summary, **told, "output": str(output), "report": str(report) if report else None}
    return Outcome(facts, exit_code_of(compiled.planned))


def _told(compiled: CompiledModel, story: list[str] | None, explain: bool) -> dict[str, Any]:
    """What JSON says beside the summary, where it is asked for."""
    told: dict[str, Any] = {} if story is None else {"story": story}
    if explain:
        told["decisions"] = {part.facts.symbol: parse_json(part.facts.decisions) for part in compiled.partitions}
    return told


def _story(model: Path, compiled: CompiledModel, levels: list[Level], layer: str) -> list[str]:
    from torq_byoc.frontend import load_model
    from torq_byoc.report.story import layer_story

    nodes = [node.name for node in load_model(model).graph.node]
    return list(layer_story(compiled, levels, layer, nodes))


def _write(files: dict[Path, bytes], dump: Path | None, levels: list[Level], compiled: CompiledModel) -> None:
    """Write everything or nothing."""
    from torq_byoc.cli.dump import dump_files, replaced_files

    if dump is None:
        write_together(files)
        return
    with new_folder(dump):
        write_together({**files, **dump_files(dump, levels, compiled)}, replaced_files(dump))


def _measured(container: Path, profile: str) -> Measurement:
    from torq_byoc.compiled_model import load
    from torq_byoc.report.measure import measure

    return measure(load(container), profile)


def _page(measurement: Measurement, before: Measurement | None, earlier: Path | None) -> str:
    from torq_byoc.report.page.comparison import require_same_model
    from torq_byoc.report.page.render import html_report

    if before and earlier:
        require_same_model(measurement.model.facts, before.model.facts, earlier)
    return html_report(measurement, before)
