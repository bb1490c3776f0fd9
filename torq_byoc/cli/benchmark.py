"""Measurements behind ``torq bench`` and ``torq demo``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from torq_byoc.cli.request import holds_container, naming_the_file, options_of
from torq_byoc.compiled_model import CompiledModel, load
from torq_byoc.files import shown_name
from torq_byoc.report.host_time import host_microseconds
from torq_byoc.report.summary import summarize


def is_container(path: Path) -> bool:
    """Whether a path means a container: by its name, or by how the file begins."""
    return path.suffix == ".torq" or holds_container(path)


def benchmark_model(
    path: Path, profile: str, budget: float, *, step: Callable[[str], None], **request: Any
) -> dict[str, Any]:
    """Compile a model and measure it and its CPU baselines.

    Raises:
        TorqError: anything wrong with the request or the model.
    """
    from torq_byoc.compiler import compile_model
    from torq_byoc.frontend import load_model, prepare
    from torq_byoc.report.baseline import cpu_baseline, example_inputs

    options = options_of(profile=profile, step=step, **request)
    model = load_model(path)
    with naming_the_file(request.get("record")):
        compiled = compile_model(model, options, name=shown_name(path))
    prepared = prepare(model, dict(options.shapes))
    feeds = example_inputs(prepared)
    step("CPU baseline")
    baseline = cpu_baseline(prepared, feeds, budget)
    step("simulation")
    return {**measured(compiled, feeds, profile, budget), "cpu_baseline": baseline}


def benchmark_container(path: Path, profile: str, budget: float) -> dict[str, Any]:
    """Measure a container.

    Raises:
        ProgramFormatError, VerificationError: the container is damaged or unsafe.
    """
    compiled = load(path)
    rng = np.random.default_rng(0)
    feeds = {
        spec.name: rng.integers(0, 2, spec.shape).astype(np.dtype(spec.dtype))
        if np.dtype(spec.dtype).kind in "iub"
        else rng.standard_normal(spec.shape).astype(np.dtype(spec.dtype))
        for spec in compiled.facts.inputs
    }
    return {**measured(compiled, feeds, profile, budget), "cpu_baseline": None}


def measured(compiled: CompiledModel, feeds: Mapping[str, np.ndarray], profile: str, budget: float) -> dict[str, Any]:
    """The summary with the measured time of the host part, and how long a simulated inference takes."""
    summary = summarize(compiled, profile)
    compiled.run(feeds)
    started = time.perf_counter()
    compiled.run(feeds)
    simulation = time.perf_counter() - started
    summary["cycles"] = {**summary["cycles"], "host_us": host_microseconds(compiled, feeds, budget / 2)}
    return {**summary, "simulation_seconds": simulation}
