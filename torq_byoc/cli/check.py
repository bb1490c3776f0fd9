"""``torq check``: may this model be shipped on this NPU, and if not, why and what helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torq_byoc.cli.options import NAME, PATH, Outcome, json_option, model_options, progress, refuse_unused
from torq_byoc.cli.request import files_read, naming_the_file, options_of, refuse_container
from torq_byoc.cli.targets import check_targets
from torq_byoc.files import shown_name, write_together

if TYPE_CHECKING:
    from torq_byoc.accuracy.check import CheckResult
    from torq_byoc.accuracy.stages import Stages

MOST_SAMPLES = 1_000_000


@click.command(name="check")
@click.argument("model", type=PATH)
@click.argument("container", metavar="[OUT.torq]", type=PATH, required=False)
@click.option("--data", type=PATH, required=True, help="Evaluation npz, or a folder of them; `labels` may be in it.")
@click.option(
    "--float-model", type=PATH, metavar="FILE.onnx", help="What a MODEL with scales of its own was made from."
)
@model_options
@click.option("--thresholds", "limits", type=PATH, help="YAML file of limits; docs/accuracy.md has the defaults.")
@click.option("--metric", type=NAME, metavar="FILE.py:function", help="A quality of yours, from the outputs of both.")
@click.option(
    "--layer-samples",
    type=click.IntRange(1, MOST_SAMPLES),
    default=4,
    show_default=True,
    help="Samples on which every layer is looked at.",
)
@click.option("--report", type=PATH, help="HTML report to write.")
@click.option("--bisect", "folder", type=PATH, metavar="DIR", help="Cut the first wrong layer out, into this folder.")
@json_option
def command(
    model: Path,
    container: Path | None,
    data: Path,
    float_model: Path | None,
    limits: Path | None,
    metric: str | None,
    layer_samples: int,
    report: Path | None,
    folder: Path | None,
    as_json: bool,
    **request: Any,
) -> Outcome:
    """Check MODEL on the simulated NPU against the float model, or OUT.torq that was compiled from it.

    Exit code 1 when a threshold is missed.
    """
    from torq_byoc.accuracy.api import stages_for_check
    from torq_byoc.accuracy.check import check
    from torq_byoc.accuracy.layers.float_model import with_float_model
    from torq_byoc.accuracy.result_json import result_data
    from torq_byoc.accuracy.verdict.thresholds import Thresholds, load_thresholds
    from torq_byoc.frontend import load_model
    from torq_byoc.quantize.user_metric import load_metric
    from torq_byoc.report.accuracy_tables import print_check

    if container:
        decided = ("precision", "hw", "record", "records", "effort", "disabled")
        refuse_unused([name for name in decided if name in request], f"{shown_name(container)} is compiled already")
        if any(request[name] is not None for name in ("plan", "sqnr", "cosine")):
            request["precision"] = "mixed"  # of no other container: whether this is one is seen when it is read
    given = {"MODEL": model, "OUT.torq": container, "--float-model": float_model}
    read = {**given, "--data": data, "--thresholds": limits, **files_read(**request)}
    check_targets({"--report": report}, read, {"--bisect": folder})
    for path in filter(None, (model, float_model)):
        refuse_container(path)
    thresholds = load_thresholds(limits) if limits else Thresholds()
    function = load_metric(metric) if metric else None
    loaded, original = load_model(model), load_model(float_model) if float_model else None
    with progress(None, f"checking {shown_name(model)}") as step:
        options = options_of(step=step, **request)
        with naming_the_file(request.get("record")):
            stages = stages_for_check(loaded, options, shown_name(model), container)
        if original is not None:
            stages = with_float_model(stages, original)
        result = check(
            stages,
            data,
            calibration=options.calibration,
            thresholds=thresholds,
            metric=function,
            layer_samples=layer_samples,
            step=step,
        )
        cut, whole = _cut(stages, result, data, folder, step) if folder else (None, "")
    found = result_data(result)
    if report:
        from torq_byoc.report.page.accuracy import accuracy_page

        points = {(row.output, row.part): row.points for row in result.outputs}
        write_together({report: accuracy_page(found, points).encode()})
    if not as_json:
        print_check(found)
        if report:
            click.echo(f"wrote {report}")
        if folder:
            click.echo(f"wrote {folder}: {cut['command']}" if cut else f"none is cut out: {whole}")
    written = {"report": str(report) if report else None, "cut": cut, "not_cut": whole or None}
    return Outcome({**found, **written}, 0 if result.passed else 1)


def _cut(
    stages: Stages, result: CheckResult, data: Path, folder: Path, step: Callable[[str], None]
) -> tuple[dict[str, Any] | None, str]:
    """Cut the first layer out that is wrong by itself: what JSON says of it, or why there is none."""
    from itertools import islice

    from torq_byoc.accuracy.cutter.files import bisect, contents
    from torq_byoc.accuracy.evaluation_data import EvaluationData
    from torq_byoc.errors import AccuracyError

    step("cutting the failing layer out")
    feeds = next(islice(EvaluationData(stages.prepared, data), result.worst_sample, None))
    try:
        made = bisect(stages, result.deviations, feeds, folder)
    except AccuracyError as error:  # what the check found is no less worth
        return None, f"{error.what} ({error.where}: {error.why})"
    if made is None:
        return None, "no layer is wrong by itself"
    told = {
        "folder": str(folder),
        "nodes": list(made.nodes),
        "fails_alike": made.found is not None,
        "command": contents(made)[1],
    }
    return told, ""
