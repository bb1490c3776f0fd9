"""``torq bench``: the NPU's cycles and bytes beside what the CPU of this machine takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torq_byoc.cli.options import (
    PATH,
    SECONDS,
    Outcome,
    json_option,
    model_options,
    profile_option,
    progress,
    refuse_unused,
)
from torq_byoc.files import shown_name


@click.command(name="bench")
@click.argument("source", metavar="MODEL.onnx|OUT.torq", type=PATH)
@model_options
@click.option("--budget", type=SECONDS, default=1.0, show_default=True, help="Seconds a CPU timing.")
@profile_option
@json_option
def command(source: Path, budget: float, profile: str, as_json: bool, **request: Any) -> Outcome:
    """Measure a model: simulated NPU against this machine's CPU.

    A container holds no ONNX graph, so it has no CPU baseline.
    """
    from torq_byoc.cli.benchmark import benchmark_container, benchmark_model, is_container
    from torq_byoc.report.tables import print_benchmark, print_summary

    with progress(None, f"measuring {shown_name(source)}") as step:
        if is_container(source):
            refuse_unused(request, f"{shown_name(source)} is compiled already")
            data = benchmark_container(source, profile, budget)
        else:
            data = benchmark_model(source, profile, budget, step=step, **request)
    if not as_json:
        print_summary(data)
        print_benchmark(data)
    return Outcome(data)
