"""``torq tune``: search for schedules that the analytic search misses, and keep them for later compilations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torq_byoc.cli.options import (
    LARGEST_SEED,
    MOST_TRIALS,
    NAME,
    PATH,
    SECONDS,
    Outcome,
    json_option,
    metric_options,
    mixed_options,
    profile_option,
    progress,
    search_options,
)
from torq_byoc.cli.request import exit_code_of, files_read, options_of, refuse_container
from torq_byoc.cli.targets import check_targets
from torq_byoc.errors import CommandLineError
from torq_byoc.files import shown_name

if TYPE_CHECKING:
    from torq_byoc.compilation.tuning_records import RecordDatabase
    from torq_byoc.explore.tuning.model import TunedModel


@click.command(name="tune")
@click.argument("model", type=PATH)
@search_options
@mixed_options
@metric_options
@click.option("--records", type=PATH, help="Where to keep what is found; what it knows already is gone on from.")
@click.option(
    "--strategy", type=NAME, default="evolutionary", show_default=True, help="random, evolutionary or bayesian."
)
@click.option(
    "--trials", type=click.IntRange(1, MOST_TRIALS), default=100, show_default=True, help="Schedules tried a partition."
)
@click.option("--seconds", type=SECONDS, help="Stop after this time; results then depend on the machine.")
@click.option("--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, help="Of the strategy.")
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
    It is written at every improvement, so an interrupted search keeps what it found.
    """
    from torq_byoc.explore.tuning.model import TuningPlan, tune_model
    from torq_byoc.explore.tuning.strategies import load_strategy
    from torq_byoc.frontend import load_model
    from torq_byoc.report.precision_plan import plan_facts

    if records is None:
        raise CommandLineError("there is nowhere to keep what is found", where="torq tune", remedy="add --records FILE")
    refuse_container(model)
    check_targets({"--records": records}, {"MODEL": model, **files_read(**request)})
    plan = TuningPlan(load_strategy(strategy), trials, seconds, seed, profile)
    options = options_of(**request, records=records if records.exists() else None)

    def keep(database: RecordDatabase) -> None:
        database.write(records)

    with progress(None, f"tuning {shown_name(model)}") as step:
        tuned = tune_model(load_model(model), options, plan, name=shown_name(model), report=step, keep=keep)
    keep(tuned.database)
    data = {
        "model": shown_name(model),
        "hw": options.config.name,
        "profile": profile,
        "strategy": strategy,
        "seed": seed,
        **_figures(tuned),
        "plan": plan_facts(tuned.numbers.planned),
        "notes": list(tuned.numbers.notes),
        "warnings": list(tuned.numbers.warnings),
        "records": str(records),
    }
    if not as_json:
        _print(data)
    return Outcome(data, exit_code_of(tuned.numbers.planned))


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
    from torq_byoc.report.tables import print_remarks

    for partition in data["partitions"]:
        click.echo(f"{partition['symbol']}: {partition['default_cycles']:,} cycles by default")
        for found in partition["improvements"]:
            click.echo(f"  trial {found['trial']}: {found['cycles']:,} cycles")
            for change in found["changes"]:
                click.echo(f"    {change}")
        click.echo(f"  {partition['trials']} trials, {partition['infeasible']} of them did not fit")
    print_remarks(data)
    before, after = data["default_cycles"], data["cycles"]
    saved = 1 - after / before if before else 0.0
    click.echo(
        f"{data['model']} on {data['hw']}: {before:,} -> {after:,} cycles ({data['profile']}, {saved:.1%} fewer)"
    )
    click.echo(f"wrote {data['records']}")
