"""``torq demo``: the main job on an embedded trained model, end to end, with data it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torq_byoc.cli.options import PATH, Outcome, json_option, profile_option, progress
from torq_byoc.cli.targets import check_targets


@click.command(name="demo")
@click.option(
    "--trace",
    type=PATH,
    default=Path("torq-demo-trace.json"),
    show_default=True,
    help="Timeline to write, for ui.perfetto.dev.",
)
@profile_option
@json_option
def command(trace: Path, profile: str, as_json: bool) -> Outcome:
    """Compile an embedded digit classifier to int8 and run its whole test set on the simulated NPU."""
    from torq_byoc.cli.demonstration import TEST_IMAGES, demonstrate

    check_targets({"--trace": trace}, {})
    with progress(TEST_IMAGES, "demo") as step:
        data = demonstrate(trace, profile, step)
    if not as_json:
        _print(data)
    return Outcome(data, 0 if data["passed"] else 1)


def _print(data: dict[str, Any]) -> None:
    from torq_byoc.report.tables import print_benchmark, print_layers

    accuracy, cycles, dma = data["accuracy"], data["cycles"], data["dma"]
    click.echo(f"model          {data['model']}: {data['macs']:,} MACs, {data['precision']} on {data['hw']}")
    click.echo(f"float accuracy {accuracy['float']:.2%} of {accuracy['images']} test images ({accuracy['reference']})")
    click.echo(f"int8 accuracy  {accuracy['int8']:.2%} on the simulated NPU, {accuracy['agreement']:.2%} same answers")
    click.echo(f"NPU            {cycles['total']:,} cycles = {data['latency_us']:.2f} us ({data['profile']} profile)")
    click.echo(f"lower bound    {data['lower_bound_cycles']['total']:,} cycles (efficiency {data['efficiency']:.2f})")
    click.echo(f"DMA            {dma['in_bytes']:,} B in, {dma['out_bytes']:,} B out")
    print_layers(data)
    print_benchmark(data)
    click.echo(f"wrote {data['trace']} (open it in https://ui.perfetto.dev; 1 ns shown = 1 cycle)")
    click.echo(f"whole demo: {data['seconds']:.1f} s")
