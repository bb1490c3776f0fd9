"""``torq run``: one inference of a container on the simulator."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import numpy as np

from torq_byoc.cli.options import emit_json, json_option, profile_option, progress


@click.command(name="run")
@click.argument("container", type=click.Path(path_type=Path))
@click.option("--input", "source", type=click.Path(path_type=Path), required=True, help="npz with an array an input.")
@click.option("--output", "target", type=click.Path(path_type=Path), required=True, help="npz to write.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a Chrome/Perfetto timeline.")
@profile_option
@json_option
def command(container: Path, source: Path, target: Path, trace: Path | None, profile: str, as_json: bool) -> None:
    """Run CONTAINER on the simulated NPU."""
    from torq_byoc.compiled_model import load
    from torq_byoc.npu_model.container import write_file_atomically
    from torq_byoc.quantize.data import read_npz
    from torq_byoc.report.summary import summarize

    model = load(container)
    inputs = read_npz(source)
    with progress(None, "simulating"):
        outputs = model.run(inputs)
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)
    write_file_atomically(target, buffer.getvalue())
    summary = summarize(model, profile)
    if trace:
        from torq_byoc.report.trace import write_trace

        write_trace(trace, model, profile)
    result: dict[str, Any] = {
        "model": summary["model"],
        "profile": profile,
        "cycles": summary["cycles"],
        "latency_us": summary["latency_us"],
        "outputs": {name: {"shape": list(v.shape), "dtype": v.dtype.name} for name, v in outputs.items()},
        "output": str(target),
    }
    if as_json:
        emit_json(result)
        return
    click.echo(f"{summary['model']}: {summary['cycles']['total']} cycles, {summary['latency_us']:.1f} us ({profile})")
    for name, value in outputs.items():
        click.echo(f"  {name}: {value.dtype.name}{list(value.shape)}")
    click.echo(f"wrote {target}")
