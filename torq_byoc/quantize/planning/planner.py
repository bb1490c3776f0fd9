"""From a target to the plan that meets it at the least cost.

Where 8 bits everywhere miss the target, causes of error are measured one by one, moves against them ranked by gain
over cost, and the shortest beginning of the ranking that the judge finds good enough is searched by halving.  Moves
that turn out not to be needed are dropped.  Where rewrites of the model help, the same is done for the rewritten model,
and the cheaper plan is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import onnx

from torq_byoc.quantize.automatic import BIAS_CORRECTION, check_rewrite_names, enabled_rewrites
from torq_byoc.quantize.calibrate import calibrate, check_finite
from torq_byoc.quantize.certain_rewrites import with_certain_rewrites
from torq_byoc.quantize.choose_ranges import AUTO, ROOMY, SAFE, methods_to_choose_from
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.rerun import Rerun
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.macs import layer_macs
from torq_byoc.quantize.planning.moves import Prices, all_weighted, float_operators, ranges_of, wider_tensors
from torq_byoc.quantize.planning.noise import NoiseMeter, measured
from torq_byoc.quantize.planning.price import Cost, Price
from torq_byoc.quantize.planning.ranking import Step, ranked
from torq_byoc.quantize.planning.reduced_plan import reduced_plan
from torq_byoc.quantize.planning.room import with_room
from torq_byoc.quantize.planning.search import Judged, Trial, cheapest
from torq_byoc.quantize.planning.sources import rounded_weights, sources_of
from torq_byoc.quantize.planning.target import PrecisionTarget, Reached
from torq_byoc.quantize.precision_plan import PlannedRewrite, PrecisionPlan
from torq_byoc.quantize.qdq.quantizable import OPSETS, Watch, quantizable
from torq_byoc.quantize.qdq.writer import write_plan, written
from torq_byoc.quantize.quantization import quantization_of
from torq_byoc.quantize.quantized import AppliedRewrite
from torq_byoc.quantize.rewrite_search import have_reason, search_rewrites
from torq_byoc.quantize.rewrites import CERTAIN, Candidate
from torq_byoc.quantize.rewrites.candidate import quantizable_candidate
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.replay import replayed

Feed = Mapping[str, np.ndarray]

METER_SAMPLES = 2
"""Samples on which causes are told apart."""
JUDGE_SAMPLES = 4
"""Samples on which plans are judged."""
CYCLES_A_BYTE = 1.0 / 8.0
"""What a byte counts as beside cycles: transfers hide behind computation, but not all of them, and they cost power."""


@dataclass(frozen=True)
class Planned:
    """A plan and what it gives.

    Attributes:
        plan: numbers of tensors and operators.
        target: what was asked for.
        reached: by the plan, on the judge's samples.
        int8: the same by 8 bits everywhere, without rewrites that are judged.
        met: whether the plan meets the target, or there is none.
        cost: cycles and bytes that the plan is expected to take.
        int8_cost: the same for 8 bits everywhere.
    """

    plan: PrecisionPlan
    target: PrecisionTarget
    reached: Reached
    int8: Reached
    met: bool
    cost: Cost
    int8_cost: Cost


def plan_precision(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray],
    price: Price,
    target: PrecisionTarget | None = None,
    method: str = AUTO,
    progress: Callable[[str], None] | None = None,
    disabled: Collection[str] = (),
) -> Planned:
    """The cheapest plan found that meets a target; the best one found where none does.

    Args:
        model: a prepared float model.
        calibration: arrays by input name; the first axis counts samples.
        price: what quantized models cost.
        target: what to reach; ``target.USUAL_SQNR`` when nothing is asked for.
        method: calibrator of all ranges, or ``AUTO``: the extremes, but where another one serves better.
        progress: called with the name of every step.
        disabled: names of rewrites (``automatic.NAMES``) to leave out.

    Raises:
        CalibrationError: the data does not fit the model.
        QuantizationError: an unknown name in ``disabled``.
    """
    check_rewrite_names(disabled)
    tell = progress or (lambda _: None)
    tell("calibrate")
    question = _Question.about(model, calibration, price, target or PrecisionTarget.usual())
    methods = methods_to_choose_from(len(question.feeds)) if method == AUTO else (method,)
    methods = tuple(dict.fromkeys((SAFE, ROOMY, *methods)))
    start, certain = with_certain_rewrites(model, calibration, disabled)
    base = PrecisionPlan(
        method=SAFE if method == AUTO else method,
        rewrites=_planned_rewrites(certain),
        correct_biases=BIAS_CORRECTION not in disabled,
    )
    statistics = ChannelStatistics(start.model)
    plain = question.trial(start, base, methods, statistics.add)
    narrow = plain.judged(base)
    if plain.target.met(narrow.reached):
        return question.answer(narrow, narrow)
    found = [question.searched(plain, tell)]
    rewrites = enabled_rewrites(disabled)
    if have_reason(rewrites, start.model, statistics):
        tell("rewrite")
        rounded = partial(quantization_of, method=SAFE, correct_biases=base.correct_biases)
        candidate, applied = search_rewrites(rewrites, start.model, calibration, rounded)
        if applied:
            kept = (*base.rewrites, *_planned_rewrites(applied))
            changed = msgspec.structs.replace(base, rewrites=kept)
            found.append(question.searched(question.trial(candidate, changed, methods), tell))
    return question.answer(question.best_of(found), narrow)


def _planned_rewrites(applied: Iterable[AppliedRewrite]) -> tuple[PlannedRewrite, ...]:
    return tuple(PlannedRewrite(each.name, each.places, each.strength) for each in applied)


def judged_plan(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray],
    plan: PrecisionPlan,
    price: Price,
    target: PrecisionTarget | None = None,
    disabled: Collection[str] = (),
) -> Planned:
    """What a given plan gives, without the rewrites that are disabled (see ``reduced_plan``).

    Without a target every plan will do.  8 bits everywhere have those of the plan's rewrites that lose nothing, as they
    had when the plan was made.

    Raises:
        CalibrationError: the data does not fit the model.
        QuantizationError: the plan is not for this model, or an unknown name in ``disabled``.
    """
    check_rewrite_names(disabled)
    question = _Question.about(model, calibration, price, target or PrecisionTarget())
    plan = reduced_plan(plan, disabled, model, question.feeds)
    base = PrecisionPlan(method=plan.method, correct_biases=plan.correct_biases)
    certain = tuple(entry for entry in plan.rewrites if entry.name in {rewrite.name for rewrite in CERTAIN})
    trial = plain = question.trial(replayed(model, question.feeds, certain), base, plan.methods)
    if plan.rewrites != certain:
        trial = question.trial(replayed(model, question.feeds, plan.rewrites), base, plan.methods)
    return question.answer(trial.judged(plan), plain.judged(base))


@dataclass(frozen=True, eq=False)
class _Question:
    """A model, samples, and what a plan for it has to reach."""

    feeds: Sequence[Feed]
    judge: Judge
    price: Price
    target: PrecisionTarget

    @classmethod
    def about(
        cls, model: onnx.ModelProto, calibration: Mapping[str, np.ndarray], price: Price, target: PrecisionTarget
    ) -> _Question:
        feeds = tuple(samples(model, calibration))
        judge = Judge(quantizable(model, OPSETS["int16"]).model, _spread(feeds, JUDGE_SAMPLES))
        for outputs in judge.wanted:
            for name, values in outputs.items():
                check_finite(name, values)
        return cls(feeds, judge, price, target)

    def trial(
        self, candidate: Candidate, base: PrecisionPlan, methods: Sequence[str], watch: Watch | None = None
    ) -> Trial:
        """Ready to judge the plans of one form of the model, calibrated while somebody watches."""
        form = quantizable_candidate(candidate, base.correct_biases)
        watches = (*form.watches, *((watch,) if watch else ()))
        known = tuple(dict.fromkeys((*methods, *sorted(candidate.methods.values()))))
        table = calibrate(form.model, self.feeds, form.graph().to_observe(absorbed=True), known, None, watches)
        ranges = {method: table.ranges(method) for method in known}
        return Trial(form, ranges, base, self.judge, self.target, self.price)

    def searched(self, trial: Trial, tell: Callable[[str], None]) -> Judged:
        """The cheapest plan found from a base."""
        base = trial.judged(trial.base)
        if self.target.met(base.reached):
            return base
        tell("measure")
        rankings = _rankings(trial, _spread(self.feeds, METER_SAMPLES))
        tell("search")
        return self.best_of(_found(trial, rankings))

    def best_of(self, plans: Iterable[Judged]) -> Judged:
        """The cheapest plan that meets the target, the first of equals; the one that comes closest where none does."""
        given = list(plans)
        met = [each for each in given if self.target.met(each.reached)]
        if not met:
            return max(given, key=lambda each: self.target.order(each.reached))
        return min(met, key=lambda each: each.cost.cycles + each.cost.bytes * CYCLES_A_BYTE)

    def answer(self, chosen: Judged, int8: Judged) -> Planned:
        """The plan with everything to be said about it."""
        met = self.target.met(chosen.reached)
        return Planned(chosen.plan, self.target, chosen.reached, int8.reached, met, chosen.cost, int8.cost)


def _spread(feeds: Sequence[Feed], count: int) -> list[Feed]:
    """So many samples, or all, from all over the data."""
    return [feeds[i] for i in np.unique(np.linspace(0, len(feeds) - 1, min(count, len(feeds))).astype(int))]


def _rankings(trial: Trial, feeds: Sequence[Feed]) -> Iterator[list[Step]]:
    """The moves against all causes of error in a trial's base plan, by gain over cost; then all that widen tensors.

    What a layer in bf16 leaves depends on its neighbours more than what 16 bits leave does: where the first ranking's
    expectations fail, the second one's hold.
    """
    form, ranges = trial.form, trial.ranges
    narrow, quantizations = written(form, ranges, trial.base)
    whole = all_weighted(form)
    floats = write_plan(form, ranges, whole)
    prices = Prices(
        trial.costs(trial.base), trial.costs(PrecisionPlan(dtype="int16")), trial.costs(whole), CYCLES_A_BYTE
    )
    sources = sources_of(form)
    meter = NoiseMeter(
        form.model,
        Judge(form.model, feeds),
        quantizations,
        rounded_weights(narrow, [source.node for source in sources if source.node]),
        [Rerun(form.model, feed) for feed in feeds],
    )
    noise = measured(meter, sources, sum(layer_macs(form.model).values()))
    wider = [*wider_tensors(form, sources, meter, ranges, prices)]
    floating = float_operators(form, floats, sources, meter, prices)
    yield ranked([*ranges_of(form, sources, meter, ranges), *wider, *floating], noise)
    yield ranked(wider, noise, least_gain=0.0)


def _found(trial: Trial, rankings: Iterable[Sequence[Step]]) -> Iterator[Judged]:
    """The cheapest plan of every ranking, up to the first that meets the target."""
    for steps in rankings:
        found = trial.judged(with_room(trial, cheapest(trial, steps)))
        yield found
        if trial.target.met(found.reached):
            return
