"""``torq tune``: search for schedules that the analytic search misses, and keep them for later compilations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torq_byoc.cli.options import PATH, Outcome, json_option, model_options, profile_option, progress
from torq_byoc.cli.request import files_read, options_of
from torq_byoc.cli.targets import check_targets
from torq_byoc.errors import CommandLineError

if TYPE_CHECKING:
    from torq_byoc.explore.tuning.model import TunedModel


@click.command(name="tune")
@click.argument("model", type=PATH)
@model_options
@click.option("--strategy", default="evolutionary", show_default=True, help="random, evolutionary or bayesian.")
@click.option("--trials", type=click.IntRange(1), default=100, show_default=True, help="Schedules tried a partition.")
@click.option("--seconds", type=click.FloatRange(0.0), help="Stop after this time; results then depend on the machine.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the strategy.")
@profile_option
@json_option
def command(
    model: Path,
    strategy: str,
    trials: int,
    seconds: float | None,
    seed: int,
    profile: str,
    as_json: bool,
    records: Path | None,
    **request: Any,
) -> Outcome:
    """Search for schedules of MODEL that take fewer cycles, and add them to the file of --records.

    The file is created when there is none; what it knows of the model already is where the search starts.
    """
    from torq_byoc.explore.tuning.model import TuningPlan, tune_model
    from torq_byoc.explore.tuning.strategies import load_strategy
    from torq_byoc.frontend import load_model

    if records is None:
        raise CommandLineError("there is nowhere to keep what is found", where="torq tune", remedy="add --records FILE")
    check_targets({"--records": records}, {"MODEL": model, **files_read(**request, records=None)})
    plan = TuningPlan(load_strategy(strategy), trials, seconds, seed, profile)
    options = options_of(**request, records=records if records.exists() else None)
    with progress(None, f"tuning {model.name}") as step:
        tuned = tune_model(load_model(model), options, plan, name=model.name, report=step)
    tuned.database.write(records)
    data = {
        "model": model.name,
        "hw": options.config.name,
        "profile": profile,
        "strategy": strategy,
        "seed": seed,
        **_figures(tuned),
        "records": str(records),
    }
    if not as_json:
        _print(data)
    return Outcome(data)


def _figures(tuned: TunedModel) -> dict[str, Any]:
    return {
        "default_cycles": tuned.default_cycles,
        "cycles": tuned.cycles,
        "partitions": [
            {
                "symbol": partition.symbol,
                "graph": partition.key,
                "default_cycles": partition.search.default.cycles,
                "cycles": partition.search.best.cycles,
                "trials": partition.search.trials,
                "infeasible": partition.search.infeasible,
                "improvements": [
                    {"trial": found.trial, "cycles": found.cycles, "changes": list(found.changes)}
                    for found in partition.search.improvements
                ],
            }
            for partition in tuned.partitions
        ],
    }


def _print(data: dict[str, Any]) -> None:
    for partition in data["partitions"]:
        click.echo(f"{partition['symbol']}: {partition['default_cycles']:,} cycles by default")
        for found in partition["improvements"]:
            click.echo(f"  trial {found['trial']}: {found['cycles']:,} cycles")
            for change in found["changes"]:
                click.echo(f"    {change}")
        click.echo(f"  {partition['trials']} trials, {partition['infeasible']} of them did not fit")
    before, after = data["default_cycles"], data["cycles"]
    saved = 1 - after / before if before else 0.0
    click.echo(
        f"{data['model']} on {data['hw']}: {before:,} -> {after:,} cycles ({data['profile']}, {saved:.1%} fewer)"
    )
    click.echo(f"wrote {data['records']}")
