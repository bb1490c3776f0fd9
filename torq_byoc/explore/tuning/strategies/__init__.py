"""The search strategies, by name; a strategy's module is imported when it is asked for.

A new strategy is a module with a class ``Search(Strategy)`` and a line in ``STRATEGIES``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from torq_byoc.errors import CommandLineError, EnvironmentProblem, require_known
from torq_byoc.explore.tuning.strategy import Strategy


@dataclass(frozen=True)
class _Entry:
    """Module of a strategy, in this package, and the library that it needs beyond the base installation."""

    module: str
    library: str = ""


STRATEGIES = {
    "random": _Entry("random_search"),
    "evolutionary": _Entry("evolutionary"),
    "bayesian": _Entry("bayesian", library="optuna"),
}


def load_strategy(name: str) -> type[Strategy]:
    """The class of a strategy.

    Raises:
        CommandLineError: there is no such strategy.
        EnvironmentProblem: its library is not installed.
    """
    require_known(CommandLineError, "strategy", [name], STRATEGIES, where="--strategy")
    entry = STRATEGIES[name]
    try:
        found: type[Strategy] = import_module(f"{__name__}.{entry.module}").Search
    except ModuleNotFoundError as problem:
        if not entry.library or problem.name != entry.library:
            raise
        raise EnvironmentProblem(
            f"the {name} strategy needs {entry.library}",
            where=f"--strategy {name}",
            why=f"{entry.library} is not installed",
            remedy="pip install 'torq-byoc[tune]', or choose another strategy",
        ) from problem
    return found
