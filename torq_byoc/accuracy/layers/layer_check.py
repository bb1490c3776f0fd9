"""Every layer of a model at every stage, on a few samples.

========  ==============================================================================================
wanted    the prepared float model; for a model that carries its scales, the float model that it was made from where
          that has the layer, else QDQ semantics in float64
precise   QDQ semantics in float64, end to end
integers  the operator graphs in the machine's arithmetic, end to end
alone     the layer in float64, reading what was wanted of the layers before it
rounded   the layer in float64, reading the integers of the layers before it
========  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from torq_byoc.accuracy.layers.code_use import CodeCensus, CodeUse
from torq_byoc.accuracy.layers.codes import Codes
from torq_byoc.accuracy.layers.layered import LayeredEvaluator
from torq_byoc.accuracy.layers.layers import Layer, layers_of
from torq_byoc.accuracy.layers.undefined_codes import UndefinedCodes
from torq_byoc.accuracy.layers.wanted import wanted_of
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.verdict.metrics import Comparison, Figures
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator


@dataclass(frozen=True)
class PartRow:
    """Part of a layer's result, such as one operand of a concatenation.

    Attributes:
        name: of the operand.
        overall, local: as in ``LayerRow``.
        dead, dead_alone: as in ``LayerRow``.
    """

    name: str
    overall: Figures
    local: Figures
    dead: tuple[int, ...]
    dead_alone: tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """Distance of codes.

    Attributes:
        worst, mean: in quantization steps.
        sqnr: in dB, of the values that the codes stand for.
    """

    worst: float
    mean: float
    sqnr: float


@dataclass(frozen=True)
class LayerRow:
    """What the check found out about one layer.

    Attributes:
        overall: of the NPU's result (of QDQ semantics where the NPU's is not to be seen), end to end.
        local: of the layer alone.
        rounding: of the machine's integers from the layer in float64 that reads the same integers; None where they are
            not to be seen.
        use: what the quantizer does to the layer's values; None for floats.
        dead: channels that are one constant end to end, though not in the reference.
        dead_alone: the same of the layer alone.
        worst_channel: index and SQNR of the worst channel end to end; None for a single one.
        same_best: part of the places at which the largest channel is the right one.
        parts: operands of a concatenation.
        on_npu: whether the NPU's own result was compared.
        float_name: of the float model's tensor that it was held against; None where it was held against itself.
    """

    layer: Layer
    overall: Figures
    local: Figures
    rounding: Steps | None
    use: CodeUse | None
    dead: tuple[int, ...]
    dead_alone: tuple[int, ...]
    worst_channel: tuple[int, float] | None
    same_best: float | None
    parts: tuple[PartRow, ...]
    on_npu: bool
    float_name: str | None


class LayerCheck:
    """Takes in samples and gives the rows.

    Args:
        stages: of the model.
    """

    def __init__(self, stages: Stages) -> None:
        is_float = stages.precision == "bf16"
        # Without quantization a layer that is not to be seen on the NPU would be compared with itself.
        self.layers = tuple(layer for layer in layers_of(stages) if layer.place or not is_float)
        self._wanted = wanted_of(stages, self.layers)
        self._precise = None if is_float else Float64Evaluator(stages.precise)
        self._undefined = UndefinedCodes(stages.precise)
        self._model = stages.precise
        self._alone: LayeredEvaluator | None = None
        stored = {_stored(layer): layer for layer in self.layers}
        visible = {name: layer for name, layer in stored.items() if layer.place}
        self._rounded = LayeredEvaluator(stages.precise, list(visible)) if visible else None
        self._reference = IntegerReference.over(stages.precise, stages.parted.module, stages.graphs)
        self._tallies = {name: _Tally(layer) for name, layer in stored.items()}
        self._visible = visible

    def take(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Run all stages on one sample."""
        wanted, precise = self._end_to_end(feeds)
        self._undefined.take(precise)
        integers = self._run_integers(feeds)
        alone = self._run_alone(wanted, feeds)
        rounded = self._rounded.outputs(integers, feeds) if self._rounded else {}
        for name, tally in self._tallies.items():
            layer = tally.layer
            own = _real(layer, precise[name])
            values = _Values(
                wanted=wanted.get(layer.tensor, own),
                found=_real(layer, integers[name]) if name in integers else own,
                before=wanted.get(layer.tensor, precise[layer.precise]),
                alone=_real(layer, alone[name]) if name in alone else None,
                rounded=rounded.get(name),
                integers=integers.get(name),
            )
            tally.update(values)

    def rows(self) -> tuple[LayerRow, ...]:
        """In the order of the model."""
        names = self.float_names()
        return tuple(tally.row(names.get(tally.layer.tensor)) for tally in self._tallies.values())

    def float_names(self) -> Mapping[str, str]:
        """Tensors of the float model by layer, for those that it has; known from the first sample on."""
        return self._wanted.names if self._wanted else {}

    def remarks(self) -> tuple[str, ...]:
        """What figures cannot say, as sentences."""
        return self._undefined.remarks()

    def wanted(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """What the float model has for the layers on one sample."""
        return self._end_to_end(feeds)[0]

    def _end_to_end(self, feeds: Mapping[str, np.ndarray]) -> tuple[Arrays, Arrays]:
        """What is wanted by tensor of the prepared model, and what is stored by name in the precise one."""
        precise = self._precise.tensors(feeds) if self._precise else {}
        own = {layer.tensor: _real(layer, precise[_stored(layer)]) for layer in self.layers if precise}
        wanted = self._wanted.values(feeds, own) if self._wanted else {}
        return wanted, precise or wanted

    def _run_integers(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        self._reference.run(feeds)
        tensors = {call.symbol: call.tensors for call in self._reference.calls}
        found = {}
        for name, layer in self._visible.items():
            assert layer.place is not None
            values = tensors[layer.place.symbol][layer.place.tensor]
            found[name] = values if layer.codes else values.astype(np.float32)
        return found

    def _run_alone(self, wanted: Arrays, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Layers that read what was wanted; those of which nothing is known belong to the ones behind them."""
        given = {
            name: _stored_form(tally.layer.codes, wanted[tally.layer.tensor])
            for name, tally in self._tallies.items()
            if tally.layer.tensor in wanted
        }
        if self._precise is None or not given:
            return {}
        if self._alone is None:
            self._alone = LayeredEvaluator(self._model, list(given))
        return self._alone.outputs(given, feeds)


def _stored(layer: Layer) -> str:
    """Name of what the precise model stores of a layer."""
    return layer.codes.name if layer.codes else layer.precise


def _real(layer: Layer, stored: np.ndarray) -> np.ndarray:
    return layer.read_as.dequantize(stored) if layer.read_as else stored


def _stored_form(codes: Codes | None, values: np.ndarray) -> np.ndarray:
    return codes.quantize(values) if codes else values


@dataclass(frozen=True, eq=False)
class _Values:
    """One layer on one sample, real values but for ``rounded`` and ``integers``, which are as they are stored.

    ``before`` is what the quantizer is given.
    """

    wanted: np.ndarray
    found: np.ndarray
    before: np.ndarray
    alone: np.ndarray | None
    rounded: np.ndarray | None
    integers: np.ndarray | None


@dataclass(eq=False)
class _Tally:
    """What is gathered about one layer."""

    layer: Layer
    overall: Comparison = field(default_factory=Comparison)
    local: Comparison = field(default_factory=Comparison)
    machine: Comparison = field(default_factory=Comparison)
    worst_steps: float = 0.0
    steps: float = 0.0
    stepped: int = 0
    on_npu: bool = False

    def __post_init__(self) -> None:
        self.census = CodeCensus(self.layer.codes, self.layer.axis) if self.layer.codes else None
        self.parts = [(Comparison(), Comparison()) for _ in self.layer.operands]

    def update(self, values: _Values) -> None:
        """Take in one sample."""
        found = values.found.reshape(values.wanted.shape)
        self._compare(self.overall, [part[0] for part in self.parts], values.wanted, found)
        in_float = self.layer.codes is None and values.integers is not None
        if values.alone is not None and not in_float:
            self._compare(self.local, [part[1] for part in self.parts], values.wanted, values.alone)
        if values.integers is not None and values.rounded is not None:
            self._round(values.rounded, values.integers.reshape(values.rounded.shape), in_float or values.alone is None)
        if self.census:
            self.census.update(values.before)

    def _compare(self, whole: Comparison, parts: list[Comparison], wanted: np.ndarray, found: np.ndarray) -> None:
        axis = self.layer.axis
        whole.update(wanted, found, axis)
        for comparison, (_, first, end) in zip(parts, self.layer.operands, strict=True):
            own = range(first, end)
            comparison.update(np.take(wanted, own, axis), np.take(found, own, axis), axis)

    def _round(self, rounded: np.ndarray, integers: np.ndarray, is_local: bool) -> None:
        """Distance of the NPU's result; with ``is_local`` that is the layer's local error."""
        self.on_npu = True
        codes = self.layer.codes
        if codes:
            distance = np.abs(integers.astype(np.int64) - rounded.astype(np.int64))
            self.worst_steps = max(self.worst_steps, float(distance.max(initial=0)))
            self.steps += float(distance.sum())
            self.stepped += distance.size
        pair = _real(self.layer, rounded), _real(self.layer, integers)
        self.machine.update(*pair, self.layer.axis)
        if is_local:
            self._compare(self.local, [part[1] for part in self.parts], *pair)

    def row(self, float_name: str | None) -> LayerRow:
        """What the samples so far say."""
        channels = self.overall.channel_sqnr()
        worst = (int(channels.argmin()), float(channels.min())) if channels.size > 1 else None
        return LayerRow(
            layer=self.layer,
            overall=self.overall.figures(),
            local=self.local.figures(),
            rounding=self._steps(),
            use=self.census.use() if self.census else None,
            dead=self.overall.dead_channels(),
            dead_alone=self.local.dead_channels(),
            worst_channel=worst,
            same_best=self.overall.agreement(),
            parts=tuple(self._part(*part) for part in zip(self.layer.operands, self.parts, strict=True)),
            on_npu=self.on_npu,
            float_name=float_name,
        )

    def _steps(self) -> Steps | None:
        if not self.stepped:
            return None
        return Steps(self.worst_steps, self.steps / self.stepped, self.machine.figures().sqnr)

    @staticmethod
    def _part(operand: tuple[str, int, int], both: tuple[Comparison, Comparison]) -> PartRow:
        overall, local = both
        return PartRow(operand[0], overall.figures(), local.figures(), overall.dead_channels(), local.dead_channels())
