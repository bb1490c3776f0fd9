"""From a float model to a QDQ model: calibrate, choose ranges, write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import ParamSpec, cast

import numpy as np
import onnx

from torq_byoc.errors import CalibrationError
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.choose_ranges import (
    AUTO,
    SAFE,
    RangeChoice,
    choose_ranges,
    methods_to_choose_from,
    uniform_choice,
)
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.precision_plan import Dtype, PrecisionPlan
from torq_byoc.quantize.qdq.planned_ranges import planned_ranges
from torq_byoc.quantize.qdq.quantizable import OPSETS, Quantizable, Watch, quantizable
from torq_byoc.quantize.qdq.writer import QdqWriter, write_plan
from torq_byoc.quantize.quantized import Quantized
from torq_byoc.quantize.rewrites.candidate import quantizable_candidate
from torq_byoc.quantize.rewrites.replay import replayed


def quantization_of(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray] | None,
    *,
    precision: str = "int8",
    method: str = AUTO,
    plan: PrecisionPlan | None = None,
    progress: Callable[[], None] | None = None,
    floats: Collection[str] = (),
    wide: Collection[str] = (),
    watch: Watch | None = None,
    correct_biases: bool = True,
    methods: Mapping[str, str] | None = None,
) -> Quantized:
    """Quantize a prepared float model.

    Args:
        model: as ``frontend.prepare`` returns it: static shapes, batch norm folded.  Weights that it stores
            as int8 codes keep them.
        calibration: arrays by input name; the first axis counts samples.
        precision: type of activations, "int8" or "int16"; weights are int8 a channel, biases int32.
        method: calibrator (``observers.CALIBRATORS``), or ``AUTO``: the best for each tensor, which are the
            extremes for int16, whose steps are too fine for a narrower range to gain anything.
        plan: what every tensor and operator gets, in place of ``precision``, ``method``, ``floats``, ``wide`` and
            ``correct_biases``; its rewrites are applied before.
        progress: called after each calibration sample.
        floats: names of nodes that stay float.
        wide: names of tensors with codes of 16 bits whatever the precision.
        watch: receives all tensors of every calibration sample.
        correct_biases: take from biases what rounding the weights adds to the means of results.
        methods: calibrators of tensors that have one of their own.

    Raises:
        CalibrationError: the data does not fit the model, or is missing; there is no such method.
        QuantizationError: the model's opset cannot be raised to one with per-channel QDQ, or the plan is not for it.
    """
    if calibration is None:
        raise CalibrationError("int8 needs calibration data", remedy="give --calib FILE.npz")
    if plan is not None:
        return _planned(model, calibration, plan, progress, watch)
    form = quantizable(model, OPSETS["int16" if wide else precision], correct_biases, floats, methods, wide)
    feeds = tuple(samples(form.model, calibration))
    choose = method == AUTO and precision == "int8"
    usual = methods_to_choose_from(len(feeds)) if choose else (SAFE if method == AUTO else method,)
    known = tuple(dict.fromkeys((*usual, *sorted(form.methods.values()))))
    writer = QdqWriter(form, PrecisionPlan(dtype=cast(Dtype, precision)))
    table = calibrate(form.model, feeds, writer.graph.to_observe(), known, progress, _watches(form, watch))
    choice = uniform_choice(table, usual[0], form.methods)
    quantized = writer.write(choice.ranges)
    if choose:
        first = choice.methods
        choice = choose_ranges(form.model, feeds, table, quantized, writer.parameters_for, form.methods)
        if choice.methods != first:
            quantized = QdqWriter(form, writer.graph.plan).write(choice.ranges)
    return Quantized(quantized, method, table, choice, model)


_Parameters = ParamSpec("_Parameters")


def _model_of(quantize: Callable[_Parameters, Quantized]) -> Callable[_Parameters, onnx.ModelProto]:
    """The same function where nothing but the quantized model matters."""

    @wraps(quantize)
    def model(*args: _Parameters.args, **options: _Parameters.kwargs) -> onnx.ModelProto:
        return quantize(*args, **options).model

    return model


quantize_model = _model_of(quantization_of)
"""The model of ``quantization_of``."""


def _planned(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray],
    plan: PrecisionPlan,
    progress: Callable[[], None] | None,
    watch: Watch | None,
) -> Quantized:
    feeds = tuple(samples(model, calibration))
    candidate = replayed(model, feeds, plan.rewrites)
    form = quantizable_candidate(candidate, plan.correct_biases)
    names = form.graph().to_observe(absorbed=True)
    known = tuple(dict.fromkeys((*plan.methods, *sorted(form.methods.values()))))
    table = calibrate(form.model, feeds, names, known, progress, _watches(form, watch))
    ranges = {method: table.ranges(method) for method in known}
    methods = {name: plan.method_of(name, form.methods.get(name)) for name in names if plan.range_of(name) is None}
    choice = RangeChoice(planned_ranges(form, ranges, plan, methods), methods, 0.0)
    return Quantized(write_plan(form, ranges, plan), plan.method, table, choice, candidate.model)


def _watches(form: Quantizable, watch: Watch | None) -> tuple[Watch, ...]:
    return (*form.watches, *((watch,) if watch else ()))
