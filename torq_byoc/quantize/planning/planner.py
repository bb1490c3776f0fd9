"""From a target to the plan that meets it at the least cost.

Causes of error are measured one by one, moves against them ranked by gain over cost, and the shortest beginning of
the ranking that the judge finds good enough is searched by halving.  Moves that turn out not to be needed are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.quantize.bf16_rounding import with_bf16_rounding
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.choose_ranges import AUTO, SAFE, methods_to_choose_from
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.rerun import Rerun
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.planning.moves import Prices, all_weighted, float_operators, ranges_of, wider_tensors
from torq_byoc.quantize.planning.noise import NoiseMeter, measured
from torq_byoc.quantize.planning.price import Cost, Price, total
from torq_byoc.quantize.planning.ranking import Step, plan_of, ranked
from torq_byoc.quantize.planning.sources import rounded_weights, sources_of
from torq_byoc.quantize.planning.target import PrecisionTarget, Reached
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.quantizable import OPSETS, Quantizable, quantizable
from torq_byoc.quantize.qdq.writer import Ranges, write_plan, written

Feed = Mapping[str, np.ndarray]

METER_SAMPLES = 2
"""Samples on which causes are told apart."""
JUDGE_SAMPLES = 4
"""Samples on which plans are judged."""
MOST_DROPS = 16
"""Sets of moves that are tried to be left out again."""
CYCLES_A_BYTE = 1.0 / 8.0
"""What a byte counts as beside cycles: transfers hide behind computation, but not all of them, and they cost power."""


@dataclass(frozen=True)
class Planned:
    """A plan and what it gives.

    Attributes:
        plan: numbers of tensors and operators.
        target: what was asked for.
        reached: by the plan, on the judge's samples.
        int8: the same by 8 bits everywhere.
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
) -> Planned:
    """The cheapest plan found that meets a target; the best one found where none does.

    Args:
        model: a prepared float model.
        calibration: arrays by input name; the first axis counts samples.
        price: what quantized models cost.
        target: what to reach; ``target.USUAL_SQNR`` when nothing is asked for.
        method: calibrator of all ranges, or ``AUTO``: the extremes, but where another one serves better.
        progress: called with the name of every step.

    Raises:
        CalibrationError: the data does not fit the model.
    """
    tell = progress or (lambda _: None)
    tell("calibrate")
    form, feeds = _ready(model, calibration)
    methods = methods_to_choose_from(len(feeds)) if method == AUTO else tuple(sorted({SAFE, method}))
    base = PrecisionPlan(method=SAFE if method == AUTO else method)
    ranges = _ranges(form, feeds, methods)
    trial = _Trial(form, ranges, base, _judge(form, feeds), target or PrecisionTarget.usual())
    narrow = price(write_plan(form, ranges, base))
    if trial.met(()):
        return trial.outcome(base, price, narrow)
    tell("measure")
    steps = _ranking(form, feeds, ranges, base, price, narrow)
    tell("search")
    chosen = _without_needless(trial, _shortest(trial, _without_harmful(trial, steps)))
    return trial.outcome(plan_of(chosen, base), price, narrow)


def judged_plan(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray],
    plan: PrecisionPlan,
    price: Price,
    target: PrecisionTarget | None = None,
) -> Planned:
    """What a given plan gives (see ``plan_precision``); without a target every plan will do.

    Raises:
        CalibrationError: the data does not fit the model.
        QuantizationError: the plan is not for this model.
    """
    form, feeds = _ready(model, calibration)
    base = PrecisionPlan(method=plan.method)
    ranges = _ranges(form, feeds, plan.methods)
    trial = _Trial(form, ranges, base, _judge(form, feeds), target or PrecisionTarget())
    return trial.outcome(plan, price, price(write_plan(form, ranges, base)))


def _ready(model: onnx.ModelProto, calibration: Mapping[str, np.ndarray]) -> tuple[Quantizable, Sequence[Feed]]:
    """The model ready for any plan, and its samples."""
    form = quantizable(model, OPSETS["int16"])
    return form, tuple(samples(form.model, calibration))


def _ranges(form: Quantizable, feeds: Sequence[Feed], methods: Sequence[str]) -> Ranges:
    table = calibrate(
        form.model, feeds, IntegerGraph(form.model).to_observe(absorbed=True), methods, None, form.watches
    )
    return {method: table.ranges(method) for method in methods}


def _judge(form: Quantizable, feeds: Sequence[Feed]) -> Judge:
    return Judge(form.model, _spread(feeds, JUDGE_SAMPLES))


def _spread(feeds: Sequence[Feed], count: int) -> list[Feed]:
    """So many samples, or all, from all over the data."""
    return [feeds[i] for i in np.unique(np.linspace(0, len(feeds) - 1, min(count, len(feeds))).astype(int))]


def _ranking(
    form: Quantizable,
    feeds: Sequence[Feed],
    ranges: Ranges,
    base: PrecisionPlan,
    price: Price,
    int8: Mapping[str, Cost],
) -> list[Step]:
    """The moves against all causes of error in a plan, by gain over cost; ``int8`` are the plan's costs."""
    model = form.model
    narrow, quantizations = written(form, ranges, base)
    wide = write_plan(form, ranges, PrecisionPlan(dtype="int16"))
    floats = write_plan(form, ranges, all_weighted(form))
    prices = Prices(int8, price(wide), price(floats), CYCLES_A_BYTE)
    sources = sources_of(form)
    few = _spread(feeds, METER_SAMPLES)
    meter = NoiseMeter(
        model,
        Judge(model, few),
        quantizations,
        rounded_weights(narrow, [source.node for source in sources if source.node]),
        [Rerun(model, feed) for feed in few],
    )
    moves = [
        *ranges_of(form, sources, meter, ranges),
        *wider_tensors(form, sources, meter, ranges, prices),
        *float_operators(form, floats, sources, meter, prices),
    ]
    return ranked(moves, measured(meter, sources, _macs(model)))


class _Trial:
    """Judges the beginnings of a ranking, each once."""

    def __init__(
        self, form: Quantizable, ranges: Ranges, base: PrecisionPlan, judge: Judge, target: PrecisionTarget
    ) -> None:
        self.target = target
        self._form, self._ranges, self._base, self._judge = form, ranges, base, judge
        self._known: dict[str, Reached] = {}

    def outcome(self, plan: PrecisionPlan, price: Price, int8: Mapping[str, Cost]) -> Planned:
        """A plan with what it gives; ``int8`` are the costs of 8 bits everywhere."""
        reached = self._of(plan)
        return Planned(
            plan=plan,
            target=self.target,
            reached=reached,
            int8=self._of(self._base),
            met=self.target.met(reached),
            cost=total(price(write_plan(self._form, self._ranges, plan))),
            int8_cost=total(int8),
        )

    def reached(self, steps: Iterable[Step]) -> Reached:
        """What the plan of some steps reaches."""
        return self._of(plan_of(list(steps), self._base))

    def _of(self, plan: PrecisionPlan) -> Reached:
        key = plan.dumps()
        if key not in self._known:
            quantized = with_bf16_rounding(write_plan(self._form, self._ranges, plan), plan.nodes)
            self._known[key] = self.target.of(self._judge, quantized)
        return self._known[key]

    def met(self, steps: Iterable[Step]) -> bool:
        """Whether the plan of some steps meets the target."""
        return self.target.met(self.reached(steps))


def _without_harmful(trial: _Trial, steps: Sequence[Step]) -> Sequence[Step]:
    """The ranking without its other ranges, if the outputs are worse with them: they are free, but not always good."""
    free = [step for step in steps if not step.move.cost]
    worse = trial.target.order(trial.reached(free)) < trial.target.order(trial.reached(()))
    return [step for step in steps if step.move.cost] if worse else steps


def _shortest(trial: _Trial, steps: Sequence[Step]) -> list[Step]:
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


def _best(trial: _Trial, steps: Sequence[Step]) -> Sequence[Step]:
    """Of beginnings of a ranking that miss the target, the one that comes closest."""
    lengths = sorted({0, *(len(steps) * part // 4 for part in range(1, 5))})
    return max((steps[:length] for length in lengths), key=lambda some: trial.target.order(trial.reached(some)))


def _without_needless(trial: _Trial, steps: list[Step]) -> list[Step]:
    """The steps without those that the target can do without: halves, quarters and so on, the least worth first."""
    if not trial.met(steps):
        return steps
    size, tries = len(steps) // 2, MOST_DROPS
    while size and tries:
        end = len(steps)
        while end > 0 and tries:
            rest = [*steps[: max(0, end - size)], *steps[end:]]
            if any(step.move.cost for step in steps[max(0, end - size) : end]):
                tries -= 1
                steps = rest if trial.met(rest) else steps
            end -= size
        size //= 2
    return steps


def _macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of a run, roughly: an element of a layer's result for every weight of its channel."""
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.value_info}
    shapes |= {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.output}
    weights = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    count = 0
    for node in model.graph.node:
        elements = int(np.prod(shapes.get(node.output[0], [0])))
        channel = 1
        if len(node.input) > 1 and node.input[1] in weights and node.op_type in ("Conv", "MatMul", "Gemm"):
            dims = next(list(t.dims) for t in model.graph.initializer if t.name == node.input[1])
            channel = int(np.prod(dims[1:])) if node.op_type == "Conv" else max(1, weights[node.input[1]] // dims[-1])
        count += elements * channel
    return count
