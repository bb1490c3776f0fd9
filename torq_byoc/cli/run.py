"""``torq run``: one inference of a container on the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torq_byoc.cli.options import PATH, Outcome, json_option, profile_option, progress
from torq_byoc.cli.targets import check_targets
from torq_byoc.files import write_together


@click.command(name="run")
@click.argument("container", type=PATH)
@click.option("--input", "source", type=PATH, required=True, help="npz with an array an input.")
@click.option("--output", "target", type=PATH, required=True, help="npz to write.")
@click.option("--trace", type=PATH, help="Write a Chrome/Perfetto timeline.")
@profile_option
@json_option
def command(container: Path, source: Path, target: Path, trace: Path | None, profile: str, as_json: bool) -> Outcome:
    """Run CONTAINER on the simulated NPU."""
    from torq_byoc.compiled_model import load
    from torq_byoc.npz import npz_bytes
    from torq_byoc.quantize.data import read_npz
    from torq_byoc.report.summary import headline
    from torq_byoc.report.trace import trace_bytes

    check_targets({"--output": target, "--trace": trace}, {"CONTAINER": container, "--input": source})
    model = load(container)
    inputs = read_npz(source)
    with progress(None, "simulating"):
        outputs = model.run(inputs)
    files = {target: npz_bytes(outputs)}
    if trace:
        files[trace] = trace_bytes(model, profile)
    write_together(files)
    result: dict[str, Any] = {
        **headline(model, profile),
        "outputs": {name: {"shape": list(v.shape), "dtype": v.dtype.name} for name, v in outputs.items()},
        "output": str(target),
        "trace": str(trace) if trace else None,
    }
    if not as_json:
        _print(result)
    return Outcome(result)


def _print(result: dict[str, Any]) -> None:
    cycles, profile = result["cycles"]["total"], result["profile"]
    click.echo(f"{result['model']}: {cycles:,} cycles, {result['latency_us']:.1f} us ({profile} profile)")
    for name, value in result["outputs"].items():
        click.echo(f"  {name}: {value['dtype']}{value['shape']}")
    for written in filter(None, (result["output"], result["trace"])):
        click.echo(f"wrote {written}")
