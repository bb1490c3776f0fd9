"""From a failing model to the smallest model that still fails: at most three operators and their real operands.

The cut is made around a layer that is wrong by itself.  Which model it is cut from depends on where the error arises:
the model as given for import, the float model for quantization (its ranges come from the layer's own operands over the
calibration data), the quantized model for everything behind, and for scales that it came with: there the float model's
values are the operands, and its part of the same layers is what the cut is held against.

Each cut is checked like any model, and the first one that fails in the same stage is taken, compiled as the model was
or else without rewrites of the quantizer, on the scheduler's own decisions or else on those of the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import onnx

from torq_byoc.accuracy.causes.attribution import layer_deviations
from torq_byoc.accuracy.cutter.float_part import FloatSide
from torq_byoc.accuracy.cutter.window import Cutter, Window
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.float_model import with_float_model
from torq_byoc.accuracy.layers.import_check import ImportCheck
from torq_byoc.accuracy.layers.layer_check import LayerCheck
from torq_byoc.accuracy.programs.program_check import ProgramCheck
from torq_byoc.accuracy.references.float_reference import OnnxRuntime, float_reference
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.compilation.options import Options
from torq_byoc.errors import AccuracyError, TorqError
from torq_byoc.frontend.graph import producers
from torq_byoc.quantize.automatic import NAMES
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.precision_plan import PrecisionPlan

MOST_SAMPLES = 64
"""Of the calibration data, whose operands a cut of the float model gets its ranges from."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A small model that fails.

    Attributes:
        model: the ONNX model.
        nodes: its operators; quantizations do not count.
        data: real values of its inputs, one sample.
        expected: its outputs on them, by the reference of the stage.
        calibration: operands of the calibration data; None where the model carries its scales or needs none.
        float_model: what scales that the model came with are held against; None in all other cases.
        options: what it is compiled for.
        wanted: the deviation that was to be shown.
        found: the one that it shows; None when no cut fails by itself: the layer alone is right.
    """

    model: onnx.ModelProto
    nodes: tuple[str, ...]
    data: Arrays
    expected: Arrays
    calibration: Arrays | None
    float_model: onnx.ModelProto | None
    options: Options
    wanted: Deviation
    found: Deviation | None


def cut(stages: Stages, deviation: Deviation, feeds: Mapping[str, np.ndarray]) -> Cut:
    """Cut out what is wrong.

    Args:
        stages: of the failing model.
        deviation: a local one.
        feeds: a sample on which it shows.

    Raises:
        AccuracyError: the layer is not to be found in the model that would be cut.
    """
    source = _source(stages, deviation.stage)
    node = _node_of(source, deviation)
    if deviation.stage is Stage.QUANTIZATION and stages.carries_scales:
        return _best(_beside_float(stages, source, node, deviation, feeds), node, "the float model has no such part")
    values = _values(source, deviation.stage, feeds)
    collected = _Operands(stages, source) if deviation.stage is Stage.QUANTIZATION else None
    cuts = (
        _made(window, values, collected, None, options, deviation)
        for window in Cutter(source).windows(node)
        for options in _options(stages, deviation.stage, window)
    )
    return _best(cuts, node, "it has more than three operators")


def _best(cuts: Iterator[Cut], node: str, why: str) -> Cut:
    """The first cut that fails, else the first one.

    Raises:
        AccuracyError: there is none.
    """
    first: Cut | None = None
    for made in cuts:
        if made.found:
            return made
        first = first or made
    if first is None:
        raise AccuracyError("the layer cannot be cut out", where=node, why=why)
    return first


def _beside_float(
    stages: Stages, source: onnx.ModelProto, node: str, deviation: Deviation, feeds: Mapping[str, np.ndarray]
) -> Iterator[Cut]:
    """Cuts of a model with scales of its own, each with the part of its float model."""
    side = FloatSide(stages, feeds)
    options = next(_options(stages, Stage.ROUNDING, Window((), source, {})))
    for window in Cutter(source).windows(node):
        part = side.part(window)
        if part is not None:
            yield _made(window, side.values, None, part, options, deviation)


def _source(stages: Stages, stage: Stage) -> onnx.ModelProto:
    """The model to cut from: that on the right side of where the error arises."""
    if stage is Stage.IMPORT:
        return stages.original
    return stages.prepared if stage is Stage.QUANTIZATION else stages.precise


def _node_of(model: onnx.ModelProto, deviation: Deviation) -> str:
    """The operator at fault by its name in the model to cut; of an input, the first one that reads it."""
    names = {node.name for node in model.graph.node}
    maker = producers(model.graph).get(deviation.tensor)
    if deviation.node in names or maker is not None:
        return deviation.node if deviation.node in names or maker is None else maker.name
    return next((node.name for node in Cutter(model).readers_of(deviation.tensor)), deviation.node)


def _values(model: onnx.ModelProto, stage: Stage, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Every tensor of the model to cut on a sample."""
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    if quantized and stage is not Stage.IMPORT:
        return {**feeds, **Float64Evaluator(model).tensors(feeds)}
    return {**feeds, **float_reference(model).tensors(feeds)}


class _Operands:
    """Tensors of a float model over its calibration data."""

    def __init__(self, stages: Stages, model: onnx.ModelProto) -> None:
        data = stages.options.calibration or {}
        reference = float_reference(model)
        feeds = [feed for feed, _ in zip(samples(model, data), range(MOST_SAMPLES), strict=False)]
        self._runs = [{**feed, **reference.tensors(feed)} for feed in feeds]

    def of(self, window: Window) -> Arrays:
        """Operands of a cut, the samples one behind the other."""
        return {
            name: np.concatenate([np.atleast_1d(run[value]) for run in self._runs])
            for name, value in window.values.items()
        }


def _options(stages: Stages, stage: Stage, window: Window) -> Iterator[Options]:
    """What a cut is compiled for: as the whole model; then also without rewrites, or with the model's decisions."""
    own = replace(stages.options, shapes={}, observe=None, progress=None, decisions=None, records=None)
    own = replace(own, plan=None, target=None)
    if stage is Stage.IMPORT:  # nothing behind preparation counts
        yield replace(own, precision="auto", calibration=None)
        return
    if stage is Stage.QUANTIZATION:
        if stages.planned:
            yield replace(own, plan=_part_of(stages.planned.plan, window))
        own = replace(own, precision="int8" if own.precision == "mixed" else own.precision)
        yield own
        yield replace(own, disabled_rewrites=NAMES)
        return
    # Codes that operators in bf16 read or give need mixed precision; a cut without any is as float as the model.
    for precision in {"bf16": ("bf16",), "mixed": ("mixed", "auto")}.get(stages.precision, ("auto",)):
        plain = replace(own, precision=precision, calibration=None)
        yield plain
        yield replace(plain, decisions=stages.compiled.decisions())


def _part_of(plan: PrecisionPlan, window: Window) -> PrecisionPlan:
    """What a plan says of a cut's tensors and operators; its rewrites are in the model already."""
    graph = window.model.graph
    tensors = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    return msgspec.structs.replace(
        plan,
        tensors={name: entry for name, entry in plan.tensors.items() if name in tensors},
        nodes={name: entry for name, entry in plan.nodes.items() if name in window.nodes},
        rewrites=(),
    )


def _made(
    window: Window,
    values: Mapping[str, np.ndarray],
    collected: _Operands | None,
    float_model: onnx.ModelProto | None,
    options: Options,
    wanted: Deviation,
) -> Cut:
    kinds = {value.name: value.type.tensor_type.elem_type for value in window.model.graph.input}
    data = {
        name: np.asarray(values[value]).astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[name]))
        for name, value in window.values.items()
    }
    calibration = collected.of(window) if collected else None
    if collected:
        options = replace(options, calibration=calibration)
    expected = _values(float_model or window.model, wanted.stage, data)
    outputs = {value.name: expected[value.name] for value in window.model.graph.output}
    made = Cut(window.model, window.nodes, data, outputs, calibration, float_model, options, wanted, None)
    try:
        return _checked(made)
    except TorqError:
        return made


def _checked(made: Cut) -> Cut:
    """The cut with what it shows when it is checked like any model."""
    options = made.options
    if options.decisions is not None:
        clean = stages_of(made.model, replace(options, decisions=None), name="cut")
        nodes = {node.name for graph in clean.graphs.values() for node in graph.nodes}
        tensors = {name for graph in clean.graphs.values() for name in graph.tensors}
        options = replace(options, decisions=options.decisions.restricted_to(nodes, tensors))
    stages = stages_of(made.model, options, name="cut")
    if made.float_model is not None:
        stages = with_float_model(stages, made.float_model)
    found = (d for d in _deviations(stages, made) if d.local and d.stage == made.wanted.stage)
    return replace(made, options=options, found=next(found, None))


def _deviations(stages: Stages, made: Cut) -> tuple[Deviation, ...]:
    """What the check of a stage says of a cut."""
    stage = made.wanted.stage
    if stage is Stage.IMPORT:
        imports = ImportCheck(OnnxRuntime(stages.original), stages.prepared)
        imports.take(made.data)
        return imports.deviations()
    if stage in (Stage.QUANTIZATION, Stage.ROUNDING):
        layers = LayerCheck(stages)
        layers.take(made.data)
        return layer_deviations(layers.rows())
    return ProgramCheck(stages).deviations(made.data)
