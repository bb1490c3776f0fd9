"""Bayesian search: tree-structured Parzen estimators (optuna) choose what to change in the best point so far.

A space has many more knobs than there are trials, and most of them are best left alone.  A model over all of them
would propose points that differ from every known one everywhere.  Modelled is therefore the change: which knob, and
which of its options, for one knob or two; its worth is the ratio of the cycles after and before.
"""

from __future__ import annotations

import warnings

import optuna

from torq_byoc.explore.tuning.space import Point, Space
from torq_byoc.explore.tuning.strategy import Strategy

STARTUP = 12
"""Changes that are tried before the model has a say."""
FAILED = 2.0
"""Worth of a change that does not fit, as a ratio of cycles."""
MOST = 48
"""Knobs among which the model chooses, those of the most expensive nodes."""


class Search(Strategy):
    """Asks optuna for changes one by one."""

    def __init__(self, space: Space, cycles: int, seed: int) -> None:
        super().__init__(space, cycles, seed)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._best, self._best_cycles = space.origin, cycles
        order = sorted(range(len(space.knobs)), key=lambda index: -space.weights[index])
        self._choices = tuple(sorted(order[:MOST]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed % 2**32, n_startup_trials=STARTUP, multivariate=True, group=True
            )
        self._study = optuna.create_study(sampler=sampler)
        self._trial: optuna.trial.Trial | None = None

    def propose(self) -> Point:
        """See ``Strategy``."""
        self._trial = self._study.ask()
        options = list(self._best)
        for slot in ("first", "second"):
            choices = self._choices if slot == "first" else (-1, *self._choices)
            index = int(self._trial.suggest_categorical(slot, choices))
            if index >= 0:
                options[index] = self._trial.suggest_int(f"option {index}", 0, self.space.knobs[index].options - 1)
        return tuple(options)

    def observe(self, point: Point, cycles: int | None) -> None:
        """See ``Strategy``."""
        assert self._trial is not None
        self._study.tell(self._trial, FAILED if cycles is None else cycles / self._best_cycles)
        if cycles is not None and cycles < self._best_cycles:
            self._best, self._best_cycles = point, cycles
