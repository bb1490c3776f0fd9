"""The search for the cheapest plan in a ranking of moves: plans are judged as whole models, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.quantize.bf16_rounding import with_bf16_rounding
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.planning.price import Cost, Price, total
from torq_byoc.quantize.planning.ranking import Step, plan_of
from torq_byoc.quantize.planning.target import PrecisionTarget, Reached
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.qdq.planned_ranges import Ranges
from torq_byoc.quantize.qdq.quantizable import Quantizable
from torq_byoc.quantize.qdq.writer import write_plan

MOST_DROPS = 16
"""Sets of moves that are tried to be left out again."""


@dataclass(frozen=True)
class Judged:
    """A plan, what it reaches on the judge's samples, and what it is expected to take."""

    plan: PrecisionPlan
    reached: Reached
    cost: Cost


class Trial:
    """Judges and prices plans of one form of a model, each once.

    Args:
        form: the model.
        ranges: by every calibrator that plans may ask for, of every tensor.
        base: the plan that all others start from.
        judge: knows the samples and the outputs wanted.
        target: what to reach.
        price: what quantized models cost.
    """

    def __init__(
        self,
        form: Quantizable,
        ranges: Ranges,
        base: PrecisionPlan,
        judge: Judge,
        target: PrecisionTarget,
        price: Price,
    ) -> None:
        self.form, self.ranges, self.base, self.target = form, ranges, base, target
        self._judge, self._price = judge, price
        self._reached: dict[str, Reached] = {}
        self._costs: dict[str, Mapping[str, Cost]] = {}

    def judged(self, plan: PrecisionPlan) -> Judged:
        """A plan with what it gives."""
        return Judged(plan, self.reached_by(plan), total(self.costs(plan)))

    def costs(self, plan: PrecisionPlan) -> Mapping[str, Cost]:
        """Costs of every operator under a plan."""
        key = plan.dumps()
        if key not in self._costs:
            self._costs[key] = self._price(write_plan(self.form, self.ranges, plan))
        return self._costs[key]

    def reached(self, steps: Iterable[Step]) -> Reached:
        """What the plan of some steps reaches."""
        return self.reached_by(plan_of(list(steps), self.base))

    def met(self, steps: Iterable[Step]) -> bool:
        """Whether the plan of some steps meets the target."""
        return self.target.met(self.reached(steps))

    def reached_by(self, plan: PrecisionPlan) -> Reached:
        """What a plan reaches."""
        key = plan.dumps()
        if key not in self._reached:
            floats = {*plan.nodes, *self.form.floats}
            quantized = with_bf16_rounding(write_plan(self.form, self.ranges, plan), floats)
            self._reached[key] = self.target.of(self._judge, quantized)
        return self._reached[key]


def cheapest(trial: Trial, steps: Sequence[Step]) -> PrecisionPlan:
    """The plan with the fewest steps of a ranking that meets the target; the best one seen where none does."""
    chosen = _without_needless(trial, _shortest(trial, _without_harmful(trial, steps)))
    return plan_of(chosen, trial.base)


def _without_harmful(trial: Trial, steps: Sequence[Step]) -> Sequence[Step]:
    """The ranking without its other ranges, if the outputs are worse with them: they are free, but not always good."""
    free = [step for step in steps if not step.move.cost]
    worse = trial.target.order(trial.reached(free)) < trial.target.order(trial.reached(()))
    return [step for step in steps if step.move.cost] if worse else steps


def _shortest(trial: Trial, steps: Sequence[Step]) -> list[Step]:
    """The shortest beginning of a ranking that meets the target, from where it is expected; else the best one seen."""
    expected = next((i + 1 for i, step in enumerate(steps) if step.noise <= trial.target.noise), len(steps))
    missed, met, reach = 0, None, max(1, expected)
    while met is None:
        if trial.met(steps[:reach]):
            met = reach
        elif reach >= len(steps):
            return list(_best(trial, steps))
        else:
            missed, reach = reach, min(len(steps), reach + max(1, reach // 2))
    while met - missed > 1:
        middle = (missed + met) // 2
        missed, met = (missed, middle) if trial.met(steps[:middle]) else (middle, met)
    return list(steps[:met])


def _best(trial: Trial, steps: Sequence[Step]) -> Sequence[Step]:
    """Of beginnings of a ranking that miss the target, the one that comes closest."""
    lengths = sorted({0, *(len(steps) * part // 4 for part in range(1, 5))})
    return max((steps[:length] for length in lengths), key=lambda some: trial.target.order(trial.reached(some)))


def _without_needless(trial: Trial, steps: list[Step]) -> list[Step]:
    """The steps without those that the target can do without.

    First what costs; then other ranges, which cut off what the samples hold little of, and unseen data perhaps more;
    where such go, what costs once more, for it may have been there to make up for them.
    """
    if not trial.met(steps):
        return steps
    steps = _without_some(trial, steps, [step for step in steps if step.move.cost])
    wider = _without_some(trial, steps, [step for step in steps if not step.move.cost])
    if len(wider) < len(steps):
        return _without_some(trial, wider, [step for step in wider if step.move.cost])
    return steps


def _without_some(trial: Trial, steps: list[Step], some: Sequence[Step]) -> list[Step]:
    """The steps without those of some that are not needed: halves, quarters and so on, the least worth first."""
    size, tries = (len(some) + 1) // 2, MOST_DROPS
    while size and tries:
        end = len(some)
        while end > 0 and tries:
            dropped = {id(step) for step in some[max(0, end - size) : end]}
            rest = [step for step in steps if id(step) not in dropped]
            if len(rest) < len(steps):
                tries -= 1
                steps = rest if trial.met(rest) else steps
            end -= size
        size //= 2
    return steps
